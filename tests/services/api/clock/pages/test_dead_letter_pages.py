"""The pages of dead letters: by error, one by one, and what is done with those that were chosen."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.clock.rules.outcomes import DeadLetter
from shared.clock.rules.schedules import schedule_id
from tests.services.api.clock.pages.seen import Seen, fill, look, person
from tests.services.api.conftest import House

pytestmark = [pytest.mark.repeats, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

DIED = datetime(2026, 1, 1, tzinfo=UTC)
REFUSED, GONE = "HTTP 500: <marquee>locked</marquee>", "HTTP 410"
SCHEDULE: dict[str, Any] = {
    "every": 3_600, "callback": {"type": "rabbitmq", "data": {"queue": "orders", "payload": {"a": "secret"}}}
}  # fmt: skip


async def buried(house: House, namespace: str, count: int, *, key: str = "k", error: str = REFUSED) -> list[str]:
    """The ids of new dead letters, the newest last."""
    serial = [f"{abs(hash((namespace, key, error, n))):032x}" for n in range(count)]
    await house.store.dead_letters.add([
        DeadLetter(
            id=id, death=id,
            namespace=namespace, key=key, schedule_id=schedule_id(namespace, key), generation="g", due=DIED,
            died_at=DIED + timedelta(seconds=n), attempts=3, error=error,
        )
        for n, id in enumerate(serial)
    ])  # fmt: skip
    return serial


async def left(client: Any) -> set[str]:
    return {letter["id"] for letter in (await client.get("/dead-letters")).json}


async def test_they_are_grouped_by_error(house: House) -> None:
    client, namespace = await person(house)
    await buried(house, namespace, 3)
    await buried(house, namespace, 2, error=GONE)
    page = await look(client, "/dead-letters")
    assert page.is_clean
    assert "of the newest 5" in page.text
    assert page.text.count(REFUSED) == 1 + 3
    assert any("act=dead-letter.retry" in link and "HTTP+410" in link for link in page.links)


async def test_the_chosen_are_tried_again_or_discarded_and_what_cannot_be_is_counted(house: House) -> None:
    client, namespace = await person(house)
    assert (await client.post("/schedules", SCHEDULE | {"key": "k"})).status == 201
    first, second, third = await buried(house, namespace, 3)
    [orphan] = await buried(house, namespace, 1, key="gone")
    chosen = {"chosen": [f"{namespace} {each}" for each in (first, second, orphan)]}
    done = await fill(client, "/dead-letters/retry", chosen)
    assert done.headers["location"] == "/ui/dead-letters?said=letters-left&count=1"
    assert await left(client) == {third, orphan}
    assert "1 could not be" in (await look(client, "/dead-letters", said="letters-left", count=1)).text
    refused = Seen(await fill(client, "/dead-letters/retry", {"chosen": f"{namespace} {orphan}"}))
    assert (refused.status, "its schedule is gone" in refused.text.lower()) == (409, True)
    both = {"chosen": [f"{namespace} {each}" for each in (third, orphan)], "reason": "the orders are void"}
    done = await fill(client, "/dead-letters/discard", both, key="k")
    assert done.headers["location"] == "/ui/dead-letters?key=k&said=discarded-some&count=2"
    assert await left(client) == set()
    acts = (await house.admin.get("/audit?act=dead-letter.discard")).json
    assert {act["reason"] for act in acts} == {"the orders are void"}


async def test_one_that_was_sent_twice_counts_once(house: House) -> None:
    client, namespace = await person(house)
    [letter] = await buried(house, namespace, 1)
    done = await fill(client, "/dead-letters/discard", {"chosen": [f"{namespace} {letter}"] * 2})
    assert done.headers["location"] == "/ui/dead-letters?said=discarded-some&count=1"


async def test_more_than_one_form_takes_are_refused_rather_than_cut(house: House) -> None:
    client, namespace = await person(house)
    letters = await buried(house, namespace, 2)
    missing = [f"none-{number}" for number in range(999)]
    chosen = [f"{namespace} {each}" for each in (letters[0], *missing, letters[1])]
    refused = Seen(await fill(client, "/dead-letters/discard", {"chosen": chosen}))
    assert (refused.status, "choose up to 1,000 at a time" in refused.text.lower()) == (422, True)
    assert await left(client) == set(letters)


async def test_one_is_shown_with_what_a_retry_would_do(house: House) -> None:
    client, namespace = await person(house)
    assert (await client.post("/schedules", SCHEDULE | {"key": "k"})).status == 201
    first, second = await buried(house, namespace, 2)
    page = await look(client, f"/dead-letters/{first}", namespace=namespace)
    assert "A message to the queue orders" in page.text
    assert REFUSED in page.text
    assert page.is_clean
    await fill(client, f"/dead-letters/{first}/retry", namespace=namespace)
    assert await left(client) == {second}
    await fill(client, f"/dead-letters/{second}/discard", namespace=namespace)
    assert await left(client) == set()
    assert (await look(client, f"/dead-letters/{first}", namespace=namespace)).status == 404


async def test_one_whose_schedule_is_over_says_how_its_target_is_mended(house: House) -> None:
    client, namespace = await person(house)
    once = {"schedules": ["2050-01-01T00:00:00Z"], "callback": SCHEDULE["callback"], "key": "k"}
    assert (await client.post("/schedules", once)).status == 201
    [letter] = await buried(house, namespace, 1)
    says = "give the schedule that URL and a new time"
    assert says not in (await look(client, f"/dead-letters/{letter}", namespace=namespace)).text
    assert (await client.delete("/schedules/k/occurrences/2050-01-01T00:00:00Z")).status == 204
    assert says in (await look(client, f"/dead-letters/{letter}", namespace=namespace)).text


async def test_a_viewer_sees_neither_errors_nor_acts(house: House) -> None:
    owner, namespace = await person(house)
    viewer, _ = await person(house, roles={f"namespace/{namespace}": "viewer"})
    assert (await owner.post("/schedules", SCHEDULE | {"key": "k"})).status == 201
    [letter] = await buried(house, namespace, 1)
    for path in ("/dead-letters", f"/dead-letters/{letter}"):
        page = await look(viewer, path, namespace=namespace)
        assert page.status == 200
        assert not {"locked", "secret"} & set(page.text.replace("<", " ").replace(">", " ").split())
        assert not [action for action in page.actions if action.startswith("/ui/dead-letters/")]
        assert "chosen" not in page.fields
    assert (await fill(viewer, f"/dead-letters/{letter}/discard", namespace=namespace)).status == 403
    assert await left(owner) == {letter}


@pytest.mark.parametrize("payload", ["1E400", "[1.10, -1e309, 0.1234567890123456789]", "[" * 64 + "]" * 64])
async def test_its_payload_is_the_text_that_was_given(house: House, payload: str) -> None:
    client, namespace = await person(house)
    body = '{"key":"k","every":3600,"callback":{"type":"rabbitmq","data":{"queue":"q","payload":' + payload + "}}}"
    assert (await client.post("/schedules", body.encode())).status == 201
    [letter] = await buried(house, namespace, 1)
    assert payload.encode() in (await client.get(f"/dead-letters/{letter}")).body
    page = await look(client, f"/dead-letters/{letter}", namespace=namespace)
    assert page.status == 200
    assert all(word in page.text for word in payload.strip("[]").split(", "))
