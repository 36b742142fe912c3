"""`docs/how-it-works.md` tells what is there: its drawings come from the tables, and a newcomer can read its ways."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from shared.bus.rules import deliveries, replays, subscriptions
from shared.clock.rules import schedules
from shared.console.rules import bulk_actions
from shared.jobs.rules import batches, jobs
from shared.messages.rules import credentials, ledger
from shared.messages.rules import jobs as message_jobs
from shared.messages.rules.jobs import MESSAGE_TRANSITIONS
from tests.stack.places import CHECKOUT

PAGE = (CHECKOUT / "docs" / "how-it-works.md").read_text("utf-8")
FILES_OF_A_WAY = 22
LINES_OF_A_WAY = 5_500


def block(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- end -->", PAGE, re.DOTALL)
    assert found is not None, name
    return found[1]


def drawn(what: str, transitions: Mapping[Any, frozenset[Any]]) -> str:
    lines = [
        f"{status.value:<14} {'→ ' + ', '.join(sorted(to.value for to in targets)) if targets else 'final'}"
        for status, targets in transitions.items()
    ]
    return f"{what:<11} " + f"\n{'':<11} ".join(lines)


def test_the_states_are_those_of_the_tables() -> None:
    tables = [
        drawn("job", jobs.TRANSITIONS),
        drawn("batch", batches.TRANSITIONS),
        drawn("schedule", schedules.TRANSITIONS),
        drawn("bulk action", bulk_actions.TRANSITIONS),
        drawn("credential", credentials.CREDENTIAL_TRANSITIONS),
        drawn("message job", message_jobs.MESSAGE_JOB_TRANSITIONS),
        drawn("its batches", MESSAGE_TRANSITIONS),
        drawn("subscription", subscriptions.SUBSCRIPTION_TRANSITIONS),
        drawn("delivery", deliveries.DELIVERY_TRANSITIONS),
        drawn("replay", replays.REPLAY_TRANSITIONS),
    ]
    assert block("states") == "```\n" + "\n\n".join(tables) + "\n```\n"


def test_the_ranks_of_messages_are_those_of_the_table() -> None:
    lines = [f"{rank} {', '.join(state for state in ledger.RANKS if ledger.RANKS[state] == rank)}" for rank in range(7)]
    assert block("ranks") == "```\n" + "\n".join(lines) + "\n```\n"


def test_every_path_is_there() -> None:
    named = re.findall(r"`((?:services|shared|tests|docs)/[\w./]+\.\w+)`", PAGE)
    assert len(named) > 30
    assert [path for path in named if not (CHECKOUT / path).is_file()] == []


@pytest.mark.parametrize("way", ["push", "message", "event"])
def test_a_way_is_short_enough_to_read(way: str) -> None:
    files = set(re.findall(r"`(\w+/[\w./]+\.py)`", block(f"way: {way}")))
    lines = sum(len((CHECKOUT / path).read_text("utf-8").splitlines()) for path in files)
    assert len(files) <= FILES_OF_A_WAY
    assert lines <= LINES_OF_A_WAY, f"{len(files)} files, {lines} lines"
