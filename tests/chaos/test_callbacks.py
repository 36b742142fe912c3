"""Callbacks while processes of the API die: what a provider was told is stored is, and what it tells again is not
counted again."""

import asyncio
import signal
from collections import Counter
from functools import partial
from random import Random

import aiohttp
import pytest

from services.embedded.processes import free_port
from shared.audience.rules.audiences import KeyRange
from shared.drivers.secrets import KeyRing, fresh_key
from shared.jobs.rules.batches import Batch, BatchStatus
from shared.messages.rules.answers import Channel
from shared.messages.rules.credentials import Credential
from shared.messages.rules.ledger import Message, MessageState, entry_id, write_ahead
from shared.messages.store_ledger import EntryChange, WriteResult
from shared.runtime.clock import SystemClock
from shared.store import Store
from tests.e2e.house import House, Process
from tests.providers.accounts import WHSEC
from tests.providers.callbacks import webhook
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.native]

KEY = fresh_key()
POST = "0190b5a2-0000-7000-8000-000000000001"
JOB, INCARNATION, APP = "job.abc", "abc", "app"
LATE = [MessageState.SENT, MessageState.DELIVERED, MessageState.READ, MessageState.FAILED, MessageState.INVALID]


async def an_api(house: House, *, fault: str = "") -> tuple[Process, str]:
    port = free_port()
    process = await house.start("api", fault=fault, CARILLON_API_PORT=str(port), CARILLON_PROVIDERS_SECRET_KEYS=KEY)
    return process, f"http://127.0.0.1:{port}/callbacks/{POST}"


async def put(store: Store, count: int) -> list[Message]:
    """A credential, and messages of a batch that are being called."""
    now = SystemClock().now()
    credential = Credential(
        id=POST, app_id=APP, name="main", kind="http", fields={}, rate=10, max_in_flight=20, test_recipient="t",
        created_by="a", created_at=now, updated_at=now, fingerprint="f",
        secret=KeyRing([KEY]).seal({"signingSecret": WHSEC}, POST),
    )  # fmt: skip
    assert await store.credentials.add(credential)
    batch = Batch(job_id=JOB, ordinal=0, range=KeyRange(0, 9), size=9, status=BatchStatus.SENDING, owner="w1", turn=1)
    assert await store.batches.add_page([batch])
    entries = [
        write_ahead(
            Message(id=entry_id(INCARNATION, 0, row), app_id=APP, credential_id=POST, to=f"ana{row}@example.com"),
            owner="w1",
            until=now,
        )
        for row in range(count)
    ]
    changes = [EntryChange(None, entry) for entry in entries]
    assert await store.messages.write(batch.id, "w1", changes) is WriteResult.DONE
    return entries


async def tell(web: aiohttp.ClientSession, url: str, told: list[dict[str, str]]) -> int:
    """As a provider does: the status that it is answered with, 0 without an answer."""
    request = webhook(told, WHSEC, at=SystemClock().now())
    try:
        async with web.post(url, data=request.body, headers=request.headers) as answer:
            return answer.status
    except aiohttp.ClientError:
        return 0


async def is_told(web: aiohttp.ClientSession, urls: list[str], told: list[dict[str, str]]) -> bool:
    """Tell it to one process, and where that fails to the other one the next time."""
    urls.reverse()
    return await tell(web, urls[-1], told) == 204


def bounce(entry: Message) -> dict[str, str]:
    return {"message": f"{entry.id}~1", "state": "failed", "reason": "hard-bounce", "detail": "no"}


@pytest.mark.proof
async def test_who_is_killed_behind_the_fold_is_told_again_and_nothing_changes(house: House) -> None:
    store = house.servers.store
    [entry] = await put(store, 1)
    doomed, first = await an_api(house, fault="callback.after_fold=kill")
    _, second = await an_api(house)
    async with aiohttp.ClientSession() as web:
        assert await tell(web, first, [bounce(entry)]) == 0
        assert await doomed.gone() == -signal.SIGKILL
        stored = await store.messages.get(entry.id)
        assert stored is not None
        assert stored.state is MessageState.INVALID
        assert await tell(web, second, [bounce(entry)]) == 204
    assert await store.messages.get(entry.id) == stored
    assert (await store.message_sums.count(JOB)).tally == {"invalid": 1, "reasons.hard-bounce": 1}
    assert set(await store.suppressions.find(APP, Channel.OTHER, [entry.to])) == {entry.to}


async def test_who_is_stopped_in_the_fold_and_goes_on_later_changes_nothing(house: House) -> None:
    store = house.servers.store
    entry, other = await put(store, 2)
    frozen, first = await an_api(house, fault="callback.after_fold=stop")
    _, second = await an_api(house)
    async with aiohttp.ClientSession() as web:
        waiting = asyncio.create_task(tell(web, first, [{"message": f"{entry.id}~1", "state": "delivered"}]))
        await frozen.reached("callback.after_fold")
        assert await tell(web, second, [{"message": f"{entry.id}~1", "state": "read"}, bounce(other)]) == 204
        frozen.send(signal.SIGCONT)
        assert await waiting == 204
    found = await store.messages.get(entry.id)
    assert found is not None
    assert found.state is MessageState.READ
    counted = {"read": 1, "invalid": 1, "reasons.hard-bounce": 1}
    assert (await store.message_sums.count(JOB)).tally == counted


async def test_two_processes_are_told_all_in_any_order_while_one_is_killed(house: House) -> None:
    store = house.servers.store
    entries = await put(store, 40)
    doomed, first = await an_api(house, fault="callback.after_fold@5=kill")
    _, second = await an_api(house)
    random, final, told = Random(7), {}, []
    for entry in entries:
        states = random.sample(LATE, 3)
        final[entry.id] = max(states, key=LATE.index)
        told += [_news(entry, state) for state in states]

    async def provide(web: aiohttp.ClientSession, chance: Random) -> None:
        """Tell all, a few at a time, until each post was taken by somebody."""
        mine = chance.sample(told, len(told))
        for start in range(0, len(mine), 5):
            urls = [first, second] if chance.random() < 0.5 else [second, first]
            await until(partial(is_told, web, urls, mine[start : start + 5]), "a post to be taken")

    async with aiohttp.ClientSession() as web:
        await asyncio.gather(*(provide(web, Random(seed)) for seed in range(4)))
    assert await doomed.gone() == -signal.SIGKILL
    found = await store.messages.read_batch(INCARNATION, 0)
    assert {entry.id: entry.state for entry in found.values()} == final
    counted = Counter(entry.state.value for entry in found.values())
    counted.update(f"reasons.{entry.reason}" for entry in found.values() if entry.reason)
    assert (await store.message_sums.count(JOB)).tally == dict(counted)


def _news(entry: Message, state: MessageState) -> dict[str, str]:
    if state is MessageState.INVALID:
        return bounce(entry)
    return {"message": f"{entry.id}~1", "state": state.value}
