"""How many commands schedules and attempts cost: what is done for many costs as many as what is done for one."""

from collections.abc import AsyncIterator

import pytest

from shared.clock.rules.schedules import Definition
from shared.clock.schedules import ScheduleFlow
from shared.clock.settlement import Attempt, Settlement
from shared.clock.store_occurrences import Visible, fresh_token
from shared.store import Store
from shared.time import DatabaseTime
from tests.clock.made import AHEAD, CALLBACK, HOUR, accepted, check_whole, wanted
from tests.commands import Commands, count_commands

pytestmark = pytest.mark.native

LONG = Definition(callback=CALLBACK, instants=tuple(AHEAD + n * HOUR for n in range(21)))


@pytest.fixture
def commands(store: Store, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Those of clients that are made when the database is set up."""
    return count_commands(monkeypatch)


@pytest.fixture
async def counted(commands: Commands, ready_database: str) -> AsyncIterator[Store]:
    """The database by a client whose commands are counted."""
    opened = Store.open(ready_database)
    yield opened
    await opened.close()


async def test_schedules_under_free_keys_cost_two_commands(commands: Commands, counted: Store) -> None:
    flow = ScheduleFlow(counted, DatabaseTime(counted))
    await flow.accept([wanted(str(n)) for n in range(50)])
    assert commands.counts == {"insert": 2}


async def test_a_repeated_request_costs_a_look_once_keys_were_taken(commands: Commands, counted: Store) -> None:
    flow = ScheduleFlow(counted, DatabaseTime(counted))
    assert (await accepted(flow, wanted())).created
    assert not (await accepted(flow, wanted())).created
    commands.counts.clear()
    assert not (await accepted(flow, wanted())).created
    assert commands.counts == {"find": 1}
    await check_whole(counted, "a", wanted().definition)
    commands.counts.clear()
    assert (await accepted(flow, wanted("b"))).created
    assert commands.counts == {"find": 1, "insert": 2}
    assert (await accepted(flow, wanted("c"))).created
    assert commands.counts == {"find": 1, "insert": 4}


async def test_a_long_list_is_never_stored_in_vain(commands: Commands, counted: Store) -> None:
    for _ in range(2):
        flow = ScheduleFlow(counted, DatabaseTime(counted))
        await accepted(flow, wanted(definition=LONG))
    assert commands.counts == {"find": 2, "insert": 2}


async def test_attempts_that_were_delivered_cost_two_commands(commands: Commands, counted: Store) -> None:
    flow = ScheduleFlow(counted, DatabaseTime(counted))
    schedule = (await accepted(flow, wanted(definition=LONG))).schedule
    token = fresh_token()
    for shard in range(32):
        await counted.occurrences.claim(shard, token, Visible(AHEAD + 30 * HOUR), leased_until=AHEAD)
    held = await counted.occurrences.read(token, limit=100)
    assert len(held) == len(LONG.instants)
    commands.counts.clear()
    await Settlement(counted, tick=HOUR).settle([Attempt(each, schedule, AHEAD) for each in held])
    assert commands.counts == {"insert": 1, "delete": 1}
