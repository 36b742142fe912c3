"""Writes `docs/cli.md` from the commands: `python -m tests.cli.manual` replaces what stands between its marks."""

from collections.abc import Iterator
from pathlib import Path

import click

from services.cli import main
from services.cli.exits import MEANINGS
from services.cli.root import NOUNS
from services.cli.verb import Verb, common_options

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
_COMMON = {option.name for option in common_options()}


def describe() -> dict[str, str]:
    """What stands between the marks, by their names."""
    context = click.Context(main, info_name="carillon")
    commands = {name: main.get_command(context, name) for name in NOUNS}
    return {
        "common": _table(("option", "what it says"), [_option(option) for option in common_options()]),
        "verbs": "\n".join(_noun(name, command) for name, command in commands.items() if command),
        "exits": _table(("code", "meaning"), [(str(int(code)), meaning) for code, meaning in MEANINGS.items()]),
    }


def write(page: str) -> str:
    """The page with what the commands say now."""
    for name, text in describe().items():
        before, mark, rest = page.partition(f"<!-- {name} -->\n")
        assert mark, name
        page = before + mark + text + rest[rest.index("<!-- end -->") :]
    return page


def _noun(name: str, command: click.Command) -> str:
    verbs = command.commands if isinstance(command, click.Group) else {"": command}
    lines = [f"### `carillon {name}`\n", f"{NOUNS[name]}\n"]
    lines += [line for verb, each in verbs.items() for line in _verb(f"{name} {verb}".strip(), each)]
    return "\n".join(lines) + "\n"


def _verb(words: str, command: click.Command) -> Iterator[str]:
    arguments = [_argument(each) for each in command.params if isinstance(each, click.Argument)]
    yield f"- `{' '.join([words, *arguments])}`: {_lower(command.help or '')}"
    options = [each for each in command.params if isinstance(each, click.Option)]
    own = [_option(each) for each in options if not (isinstance(command, Verb) and each.name in _COMMON)]
    for names, sentence in own:
        yield f"    - {names}: {_lower(sentence)}"


def _argument(argument: click.Argument) -> str:
    return argument.make_metavar(click.Context(click.Command("")))


def _option(option: click.Parameter) -> tuple[str, str]:
    assert isinstance(option, click.Option)
    value = "" if option.is_flag else f" {option.make_metavar(click.Context(click.Command('')))}"
    names = ", ".join(f"`{name}{value}`" for name in option.opts)
    chosen = ", ".join(option.default) if isinstance(option.default, tuple) else option.default
    shown = f" By default {chosen}." if option.show_default and chosen else ""
    needed = " Needed." if option.required else ""
    return names, f"{option.help}{shown}{needed}"


def _table(head: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    lines = [f"| {head[0]} | {head[1]} |", "| --- | --- |", *(f"| {left} | {right} |" for left, right in rows)]
    return "\n".join(lines) + "\n"


def _lower(sentence: str) -> str:
    text = " ".join(sentence.split())
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


if __name__ == "__main__":
    PAGE.write_text(write(PAGE.read_text("utf-8")), "utf-8")
