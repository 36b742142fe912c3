"""What the verbs of the bus tell people: what was refused, whose a thing is, and what a dead letter died of."""

import json
import secrets
from datetime import timedelta

import pytest
from msgspec.structs import replace

from shared.bus.rules.deliveries import DeliveryAttempt
from shared.bus.rules.subscriptions import subscription_id
from shared.bus.store_deliveries import letter_codec
from shared.clock.rules.outcomes import DeadLetter
from shared.clock.rules.schedules import schedule_id
from tests.bus.store.made_subscriptions import NOON, made
from tests.bus.test_dead_letters import letter_of
from tests.cli.conftest import Program
from tests.services.api.bus.conftest import Bus, bus
from tests.services.api.client import ADMIN
from tests.services.api.conftest import House

__all__ = ["bus"]

pytestmark = [pytest.mark.repeats, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

ORDER = '{"type": "create", "url": "https://shop.example.com/orders/1"}'
BAD = '{"type": "No", "url": "https://shop.example.com/orders/1"}'


@pytest.fixture
def topic() -> str:
    return f"orders.{secrets.token_hex(4)}"


async def token_of(bus: Bus) -> str:
    """A token of the bus."""
    return str((await bus.root.post("/api_tokens", {"name": "alice"})).json["token"])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (BAD, "Error: Refused: 1 of 1; nothing is published."),
        (f"[{BAD}, {ORDER}]", "Error: Refused: 1 of 2; the others are published."),
    ],
)
async def test_what_is_not_published_is_told(cli: Program, topic: str, given: str, told: str) -> None:
    ended = await cli.run("publish", topic, "--file", "-", given=given)
    assert ended.code == 5
    bad, *_, last = ended.err.splitlines()
    assert (bad[:16], last) == ("1: type: must be", told)
    assert ended.out.startswith("Published") is ("nothing" not in told)


async def test_a_new_topic_is_told_with_the_nearest_one(cli: Program) -> None:
    first = f"shop{secrets.token_hex(4)}.v1"
    second = first.replace(".", "")
    said = [(await cli.done("publish", name, "--file", "-", given=ORDER)).err for name in (first, second, second)]
    assert said[0].startswith(f"Made topic {first}; it has no subscriptions.")
    assert said[1:] == [f"Made topic {second}; it has no subscriptions. Did you mean {first}?\n", ""]
    assert (await cli.done("publish", f"x{first}", "--file", "-", "-q", given=ORDER)).err == ""


async def test_who_publishes_on_anothers_topic_is_told_where_to_look(cli: Program, bus: Bus, topic: str) -> None:
    assert (await bus.house.admin.put(f"/bus/topics/{topic}", {})).status == 201
    ended = await cli.run("publish", topic, "--file", "-", given=ORDER, CARILLON_TOKEN=await token_of(bus))
    assert ended.code == 6
    assert "`carillon topics list` shows each topic's owner." in ended.err
    assert "roles" not in ended.err


async def test_whose_subscription_is_missing_is_told(cli: Program) -> None:
    ended = await cli.run("replays", "list", "nowhere")
    assert (ended.code, ended.err) == (4, f"Error: key: there is no subscription nowhere of user:{ADMIN}\n")
    ended = await cli.run("subscriptions", "show", "nowhere", "--namespace", "token:other")
    assert (ended.code, ended.err) == (4, "Error: key: there is no subscription nowhere of token:other\n")


async def test_a_token_of_the_bus_is_told_that_it_opens_nothing_else(cli: Program, bus: Bus) -> None:
    token = {"CARILLON_TOKEN": await token_of(bus)}
    assert (await cli.run("topics", "list", **token)).code == 0
    ended = await cli.run("status", **token)
    assert ended.code == 6
    assert "a token of the bus opens the bus alone" in ended.err
    assert "CARILLON_TOKEN" in ended.err


async def test_a_subscription_is_shown_with_its_filter(cli: Program, topic: str) -> None:
    over_ten = {"path": "/total", "op": "gt", "value": 10}
    body = {"filter": {"types": ["a", "b"], "url_prefix": "https://x.example.com/", "data": [over_ten]}}
    callback = ("--callback", "https://app.example.com/events")
    await cli.done("subscriptions", "put", "filtered", *callback, "--topic", topic, "--body", json.dumps(body))
    shown = (await cli.done("subscriptions", "show", "filtered")).out
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert {"ordered false", f"id {subscription_id(f'user:{ADMIN}', 'filtered')}"} <= {*lines}
    at = lines.index("filter types: a, b")
    assert lines[at + 1 : at + 3] == ["url_prefix: https://x.example.com/", "/total gt 10"]


async def test_a_receiver_that_fails_is_told_in_words(cli: Program, house: House, topic: str) -> None:
    key = f"failing-{secrets.token_hex(4)}"
    await cli.done("subscriptions", "put", key, "--callback", "https://app.example.com/events", "--topic", topic)
    id = subscription_id(f"user:{ADMIN}", key)
    change = {"health.failures": 14, "health.failing_since": NOON, "health.calls": "0" * 14, "health.points": 72}
    await house.store._database["bus_cursors"].update_one({"_id": {"$regex": f"^{id}"}}, {"$set": change})
    rows = (await cli.done("subscriptions", "list", "--utc")).out.splitlines()
    assert f"failing since {NOON:%Y-%m-%d %H:%M:%S}Z" in next(row for row in rows if row.startswith(key))
    told = (await cli.done("subscriptions", "health", key, "--utc")).out
    lines = [" ".join(line.split()) for line in told.splitlines()]
    assert {"calls 0 of the last 14 calls accepted", "failures 14 in a row", "waiting 0 events"} <= {*lines}
    whole = (await cli.done("subscriptions", "show", key, "--utc")).out.splitlines()
    state = f"state failing since {NOON:%Y-%m-%d %H:%M:%S}Z"
    assert state in lines
    assert state in [" ".join(line.split()) for line in whole]
    await cli.done("subscriptions", "delete", key, "--yes")


async def test_dead_letters_of_schedules_and_of_the_bus_are_one_list(cli: Program, house: House) -> None:
    namespace, key = f"user:{ADMIN}", f"both-{secrets.token_hex(4)}"
    of_bus = replace(letter_of(made(key), 1), namespace=namespace, key=key, id=secrets.token_hex(16))
    await house.store._database["bus_dead_letters"].insert_one(letter_codec.document(of_bus))
    of_schedule = DeadLetter(
        id=f"{key}-1", death=f"{key}-1",
        namespace=namespace, key=key, schedule_id=schedule_id(namespace, key), generation="g",
        due=NOON, died_at=NOON, attempts=3, error="404 Not Found",
    )  # fmt: skip
    await house.store.dead_letters.add([of_schedule])
    by_source = {"": [of_schedule.id, of_bus.id], "schedules": [of_schedule.id], "bus": [of_bus.id]}
    for source, ids in by_source.items():
        chosen = ("--of", source) if source else ()
        assert (await cli.done("dead-letters", "list", "--key", key, "-q", *chosen)).out.split() == ids
    table = (await cli.done("dead-letters", "list", "--key", key)).out
    assert ("404 Not Found" in table, "schedules" in table, " bus " in table) == (True, True, True)
    await cli.done("dead-letters", "discard", of_bus.id, of_schedule.id, "--yes")
    assert (await cli.done("dead-letters", "list", "--key", key, "-q")).out == ""


async def test_a_dead_letter_is_shown_in_the_words_of_a_delivery(cli: Program, house: House) -> None:
    refused = DeliveryAttempt(NOON - timedelta(seconds=1), 12, status=500, excerpt="full")
    letter = replace(letter_of(made("dying"), 1), made=1, attempts=(refused,), id=secrets.token_hex(16))
    await house.store._database["bus_dead_letters"].insert_one(letter_codec.document(letter))
    shown = (await cli.done("dead-letters", "show", letter.id, "--namespace", letter.namespace)).out
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert f"died_at {NOON:%Y-%m-%d %H:%M:%S}" in lines
    assert f"attempts {refused.at:%Y-%m-%d %H:%M:%S}, 12 ms: 500 full" in lines
