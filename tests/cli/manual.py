"""Writes `docs/cli.md` from the commands: `python -m tests.cli.manual` replaces what stands between its marks."""

import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from services.cli import main
from services.cli.exits import MEANINGS
from services.cli.nouns import Verb, common_options, options_of
from services.cli.options import limit, namespace
from services.cli.root import NOUNS

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
_COMMON = {option.name for option in common_options()}
_MANY = (*options_of(of_app=True, changes=True, destroys=True), *limit(namespace(click.command()(lambda: None))).params)
_IN_MANY = {option.name: option.help for option in _MANY}
_ALIKE = 8
"""A verb that has so many options of another one names that verb in their place."""

Rows = dict[str, str]


def describe() -> dict[str, str]:
    """What stands between the marks, by their names."""
    context = click.Context(main, info_name="carillon")
    printed: dict[str, Rows] = {}
    nouns = {}
    for name in sorted(NOUNS, key=lambda name: name != "jobs"):  # its options come first, and others refer to them
        command = main.get_command(context, name)
        assert command is not None
        nouns[name] = _noun(name, command, printed)
    return {
        "common": _table(("option", "meaning"), [_option(option) for option in common_options()]),
        "many": _table(("option", "meaning"), [_option(option) for option in _MANY]),
        "verbs": "\n".join(nouns[name] for name in NOUNS),
        "exits": _table(("code", "meaning"), [(str(int(code)), meaning) for code, meaning in MEANINGS.items()]),
    }


def write(page: str) -> str:
    """The page with what the commands say now."""
    for name, text in describe().items():
        before, mark, rest = page.partition(f"<!-- {name} -->\n")
        assert mark, name
        page = before + mark + text + rest[rest.index("<!-- end -->") :]
    return page


def _noun(name: str, command: click.Command, printed: dict[str, Rows]) -> str:
    verbs = command.commands if isinstance(command, click.Group) else {"": command}
    lines = [f"### `carillon {name}`\n", f"{NOUNS[name]}\n"]
    lines += [line for verb, each in verbs.items() for line in _verb(f"{name} {verb}".strip(), each, printed)]
    return "\n".join(_wrap(line) for line in lines) + "\n"


def _wrap(line: str) -> str:
    text = line.lstrip()
    if not text.startswith("- "):
        return line
    indent = " " * (len(line) - len(text) + 2)
    return textwrap.fill(line, 150, subsequent_indent=indent, break_on_hyphens=False)


def _verb(words: str, command: click.Command, printed: dict[str, Rows]) -> Iterator[str]:
    arguments = [_argument(each) for each in command.params if isinstance(each, click.Argument)]
    options = [each for each in command.params if isinstance(each, click.Option)]
    options = [each for each in options if not (isinstance(command, Verb) and each.name in _COMMON)]
    many = [f"`{each.opts[0]}`" for each in options if _IN_MANY.get(each.name) == each.help]
    also = f" Takes {', '.join(many)}." if many else ""
    yield f"- `{' '.join([words, *arguments])}`: {_lower(command.help or '')}{also}"
    own = dict(_option(each) for each in options if _IN_MANY.get(each.name) != each.help)
    alike = max(printed, key=lambda verb: len(own.items() & printed[verb].items()), default=words)
    rest = own
    if len(own.items() & printed.get(alike, {}).items()) >= _ALIKE:
        rest = {names: sentence for names, sentence in own.items() if printed[alike].get(names) != sentence}
        lacking = ", ".join(names.split("`")[1].split()[0] for names in printed[alike] if names not in own)
        yield f"    - the options of `{alike}`{f', but not {lacking}' if lacking else ''}."
    for names, sentence in rest.items():
        yield f"    - {names}: {_lower(sentence)}"
    printed[words] = own


def _argument(argument: click.Argument) -> str:
    return argument.make_metavar(click.Context(click.Command("")))


def _option(option: click.Parameter) -> tuple[str, str]:
    assert isinstance(option, click.Option)
    value = "" if option.is_flag else f" {option.make_metavar(click.Context(click.Command('')))}"
    names = ", ".join(f"`{name}{value}`" for name in (*option.opts, *option.secondary_opts))
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
