"""Every command, run in this process: what it prints, what it asks, and how it ends. The other end answers by the
OpenAPI document, each text with the name of its field."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner

from carillon.errors import NotFound
from carillon.transport import Answer
from services.cli import main
from services.cli.api import Api
from services.cli.session import Session
from tests.cli.test_every_route import COMMANDS, ID, ByDocument
from tests.recorded.recorder import Recording, show

WORDS = sorted([*COMMANDS, ("config",)])


class Named(ByDocument):
    """Answers with texts by which fields can be told apart, and keeps the requests as lines."""

    def __init__(self, document: dict[str, Any], *, refuses: bool = False) -> None:
        super().__init__(document)
        self.lines: list[str] = []
        self._refuses = refuses

    async def call(self, method: str, path: str, **given: Any) -> Answer:
        query, content = given.get("query"), given.get("content") or b""
        words = [method, path, *([show(dict(query), None)] if query else []), *([content.decode()] if content else [])]
        self.lines.append(" ".join([*words, *(["(once)"] if given.get("once") else [])]))
        if self._refuses and not path.endswith("whoami"):
            raise NotFound("there is no such thing", status=404)
        return await super().call(method, path)

    def _example(self, schema: Mapping[str, Any], name: str = "") -> Any:
        if "$ref" in schema:
            return self._example(self._document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], name)
        if several := schema.get("anyOf") or schema.get("oneOf"):
            return self._example(min(several, key=lambda each: each.get("type") == "array"), name)
        if schema.get("type") == "object":
            return {key: self._example(each, key) for key, each in schema.get("properties", {}).items()}
        if schema.get("type") == "array":
            return [self._example(each, name) for each in schema.get("prefixItems", [schema.get("items", {})])]
        plain = schema.get("type") == "string" and "enum" not in schema and "format" not in schema
        if plain and name and not name.lower().endswith(("id", "at", "due", "since", "until", "from", "to")):
            return f"<{name}>"
        return super()._example(schema)


def record_commands(
    document: dict[str, Any], recording: Recording, patch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """A command: as it is, with `--json`, and where the API refuses it."""
    for more, refuses in (((), False), (("--json",), False), ((), True)):
        transport = Named(document, refuses=refuses)
        patch.setattr(Session, "api", property(partial(_api_of, transport)))
        end = CliRunner().invoke(main, [*words, *more, *(["--utc"] if _takes_utc(words) else [])])
        assert end.exception is None or isinstance(end.exception, SystemExit), (words, end.exception)
        title = f"## {'refused: ' * refuses}carillon {' '.join((*words, *more))}"
        lines = [title, f"--> {end.exit_code}", *(f"asked: {line}" for line in transport.lines)]
        lines += ["stdout:", _pretty(end.stdout)] if end.stdout else []
        lines += ["stderr:", end.stderr.rstrip()] if end.stderr else []
        verb = [word for word in words[:2] if not word.startswith("-") and word != ID]
        recording.add(f"cli/{'_'.join(verb)}.txt", "\n".join(lines))


def _api_of(transport: Named, _: Session) -> Api:
    return Api(transport)  # type: ignore[arg-type]


def _pretty(text: str) -> str:
    try:
        return show(msgspec.json.decode(text))
    except msgspec.DecodeError:
        return text.rstrip()


def _takes_utc(words: tuple[str, ...]) -> bool:
    command: Any = main
    for word in words[:2]:
        found = command.get_command(click.Context(command), word) if isinstance(command, click.Group) else None
        command = found or command
    return any("--utc" in each.opts for each in command.params)


def helps(
    command: click.Command = main, name: str = "carillon", parent: click.Context | None = None
) -> Iterator[tuple[str, str]]:
    """The help of every command and verb."""
    keys = ["-h", "--help"]
    context = click.Context(command, parent, name, terminal_width=100, max_content_width=100, help_option_names=keys)
    yield f"cli/help/{context.command_path.replace(' ', '_')}.txt", command.get_help(context)
    if isinstance(command, click.Group):
        for verb in command.list_commands(context):
            found = command.get_command(context, verb)
            assert found is not None
            yield from helps(found, verb, context)
