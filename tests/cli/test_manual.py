"""`docs/cli.md` is printed from the commands, and the commands keep to the words of the house."""

from collections.abc import Iterator

import click
import pytest

from services.cli import main
from services.cli.nouns import Verb
from services.cli.root import NOUNS
from services.cli.session import CommonOptions
from tests.cli.manual import PAGE, write
from tests.monitoring.test_printed import can_be_typed

CONTEXT = click.Context(main, info_name="carillon", **main.context_settings)


def verbs() -> Iterator[tuple[str, click.Command]]:
    for name in NOUNS:
        command = main.get_command(CONTEXT, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from ((f"{name} {verb}", each) for verb, each in command.commands.items())
        else:
            yield name, command


VERBS = dict(verbs())
# What cannot be taken back. A verb that only changes something can be followed by another that changes it again.
DESTROYING = {"cancel", "stop", "delete", "discard", "remove", "revoke", "redact", "start"}

CREATING = {"create", "send", "publish", "add", "apply", "import", "put", "start"}


def test_the_page_is_what_the_commands_say() -> None:
    page = PAGE.read_text("utf-8")
    assert write(page) == page, "python -m tests.cli.manual"


def test_all_that_was_asked_for_is_there() -> None:
    wanted = {
        "messages": "send import cancel find redact show",
        "jobs": "list show create preview watch pause resume stop retry delete batches samples rate messages",
        "groups": "list show create preview watch pause resume stop batches samples",
        "apps": "list show create edit devices delete",
        "templates": "list show create edit delete render diff",
        "schedules": "list due show create apply preview move backfill fire pause resume cancel delete",
        "calendars": "list show put delete",
        "deliveries": "list show",
        "dead-letters": "list show errors retry discard",
        "bulk": "list show start watch cancel",
        "queues": "list",
        "users": "list show create edit delete",
        "tokens": "list create rotate revoke",
        "credentials": "list show create update delete secret test suspend activate reencrypt",
        "subscriptions": "list show health test put pause resume secret delete",
        "replays": "create list cancel",
        "suppressions": "list add import remove",
        "audit": "list",
        "events": "list follow",
        "processes": "list",
        "minutes": "list",
        "namespaces": "list",
        "sessions": "list end",
        "settings": "list",
        "signing-secrets": "create",
        "topics": "list show put delete pressure",
        "context": "add use list show remove",
    }
    names = {f"{noun} {verb}" for noun, verbs in wanted.items() for verb in verbs.split()}
    assert {*VERBS} == {*names, "status", "completion", "listen", "publish"}


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_explains_itself_in_whole_sentences(name: str) -> None:
    command = VERBS[name]
    sentences = [command.help, *(each.help for each in command.params if isinstance(each, click.Option))]
    assert all(sentence and sentence[0] != " " and sentence.rstrip().endswith(".") for sentence in sentences), name


@pytest.mark.parametrize("name", VERBS)
def test_what_cannot_be_taken_back_is_asked_for_and_has_a_reason(name: str) -> None:
    options = {each.name for each in VERBS[name].params}
    # A context is a line of the caller's own file.
    assert ("yes" in options) == (name.rpartition(" ")[2] in DESTROYING and name != "context remove")
    assert "yes" not in options or "reason" in options


@pytest.mark.parametrize("name", VERBS)
def test_no_verb_takes_a_common_option_for_its_own(name: str) -> None:
    command = VERBS[name]
    if isinstance(command, Verb):
        names = [each.name for each in command.params]
        assert len(names) == len({*names})
        own = [each for each in command.params if each.name in CommonOptions.__struct_fields__]
        assert all(isinstance(each, click.Option) for each in own)


def listings(command: click.Command, words: str) -> Iterator[tuple[str, str]]:
    """The help of `carillon` and of each noun, as a terminal of 80 columns shows it."""
    if isinstance(command, click.Group):
        context = click.Context(command, CONTEXT, words, terminal_width=80, max_content_width=80)
        yield words, command.get_help(context)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from listings(inner, f"{words} {name}")


@pytest.mark.parametrize("listing", [pytest.param(text, id=words) for words, text in listings(main, "carillon")])
def test_no_summary_is_cut(listing: str) -> None:
    assert [line for line in listing.splitlines()[1:] if line.endswith(("...", "…"))] == []


@pytest.mark.parametrize("name", VERBS)
def test_a_bound_that_is_shown_has_a_number(name: str) -> None:
    assert "None]" not in VERBS[name].get_help(click.Context(VERBS[name], CONTEXT, name))


@pytest.mark.parametrize("name", [name for name in VERBS if name.split()[-1] in CREATING])
def test_a_verb_that_creates_shows_two_examples(name: str) -> None:
    lines = (VERBS[name].epilog or "").splitlines()[2:]
    assert [line.startswith(f"  carillon {name}") for line in lines] == [True, True]


@pytest.mark.parametrize("name", ["jobs create", "messages send"])
def test_jobs_and_messages_have_one_pair_of_flags_for_the_unsubscribed(name: str) -> None:
    flags = [(each.opts, each.secondary_opts) for each in VERBS[name].params if each.name == "transactional"]
    assert flags == [(["--transactional"], ["--marketing"])]


@pytest.mark.parametrize("name", ["groups create", "groups preview"])
def test_a_group_is_localized_without_an_option(name: str) -> None:
    assert "localized" not in {each.name for each in VERBS[name].params}


EXAMPLES = [
    line.strip().removeprefix("carillon ") for each in VERBS.values() for line in (each.epilog or "").splitlines()[2:]
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_can_be_typed(example: str) -> None:
    assert can_be_typed(example)
