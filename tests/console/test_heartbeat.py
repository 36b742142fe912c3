"""The sign of life of a process."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from shared.console.audit import ConsoleRetention
from shared.console.processes import Heartbeat, digest_settings
from shared.console.rules.processes import RunningProcess
from shared.core.errors import Unavailable
from shared.runtime import readings
from shared.runtime.health import Phase, ProcessHealth
from shared.runtime.server_settings import StoreSettings
from shared.runtime.settings import ApiSettings, LogSettings, Settings
from shared.store import Store
from shared.time import DatabaseTime


async def heartbeat(store: Store, health: ProcessHealth) -> Heartbeat:
    return Heartbeat(store, DatabaseTime(store), health, Settings(), ("worker", "feedback"))


async def test_it_tells_what_the_process_is_and_does(store: Store) -> None:
    health = ProcessHealth()

    async def fail() -> None:
        raise Unavailable("away")

    health.add("kafka", fail)
    health.phase = Phase.SERVING
    beating = await heartbeat(store, health)
    with readings.hold("push.batch", "job/1"):
        await beating.beat()
    [told] = await store.processes.list()
    assert (told.roles, told.phase, told.failing) == (("worker", "feedback"), "serving", ("kafka",))
    assert [(thing.what, thing.id) for thing in told.in_hand] == [("push.batch", "job/1")]
    assert told.in_hand_count == 1
    assert told.memory_bytes > 1_000_000
    assert told.id.startswith(f"{told.host}/")
    assert told.version[0].isdigit()
    await beating.beat()
    [again] = await store.processes.list()
    assert (again.started_at, again.in_hand) == (told.started_at, ())
    assert again.seen_at >= told.seen_at


async def test_at_a_clean_end_it_is_forgotten(store: Store) -> None:
    beating = await heartbeat(store, ProcessHealth())
    await beating.beat()
    await beating.stop()
    assert await store.processes.list() == []


async def test_a_store_that_is_away_harms_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    beating = await heartbeat(store, ProcessHealth())

    async def refuse(process: RunningProcess) -> None:
        raise Unavailable("MongoDB is away")

    with monkeypatch.context() as away:
        away.setattr(store.processes, "tell", refuse)
        await beating.beat()
    assert await store.processes.list() == []
    await beating.beat()
    assert len(await store.processes.list()) == 1


async def test_what_is_long_gone_is_forgotten(store: Store) -> None:
    beating = await heartbeat(store, ProcessHealth())
    await beating.beat()
    await store.minutes.add(await store.now() - timedelta(days=9), {"requests": 1})
    retention = ConsoleRetention(store, DatabaseTime(store), audit_days=1)
    assert (await retention.run_once()).discarded == 1
    await store.processes._processes.update_many({}, [{"$set": {"seen_at": await store.now() - timedelta(hours=2)}}])
    assert (await retention.run_once()).discarded == 0
    await store.processes.note_gone(await store.processes.list())
    assert (await retention.run_once()).discarded == 1


def test_settings_that_all_processes_share_have_one_digest() -> None:
    own = replace(Settings(), api=ApiSettings(port=1), logs=LogSettings(level="debug"))
    assert digest_settings(own) == digest_settings(Settings())
    other = replace(Settings(), store=StoreSettings(url="mongodb://elsewhere/carillon"))
    assert digest_settings(other) != digest_settings(Settings())
    secrets = [
        replace(Settings(), store=StoreSettings(url=f"mongodb://carillon:{word}@host/carillon")) for word in ("a", "b")
    ]
    assert digest_settings(secrets[0]) == digest_settings(secrets[1])
