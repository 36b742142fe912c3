"""Divisions: every device in exactly one list of one zone, whoever dies, and however many divide at once."""

import asyncio
import random
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Generator, Mapping
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from services.worker.jobs.cutting import FileCuts
from services.worker.jobs.dividing import Divider, ZoneCuts
from services.worker.push.recipients import GONE, RecipientReader
from shared.audience.rules.audiences import DeviceList, File, PushTable
from shared.audience.rules.devices import Keys
from shared.audience.rules.zones import REST, ZoneRules, zone_of
from shared.core.errors import Invalid, Unavailable
from shared.drivers.blobs.files import FolderBlobs
from shared.drivers.postgres import Audience, Divided
from shared.jobs.rules.batches import Batch, Receipt
from shared.jobs.rules.groups import Division, Step
from shared.jobs.rules.jobs import Job, Plan
from shared.store import Store
from tests.jobs.made import a_job
from tests.services.worker.push.test_recipients import in_parts

OFFSETS = ("-0300", "+0000", "+0100")
TEXTS = (*OFFSETS, "-0000", None)
RULES = ZoneRules(OFFSETS, 1_924_365_600 * 10**9)
SIZE = 3
ABOUT = "2 devices are in the zone rest, which starts with UTC, because tz names no time zone: none, 'Mars'."


def a_zones_job(source: PushTable | File, zone: str = REST, **fields: Any) -> Job:
    plan = Plan(source=source)
    path = source.path if isinstance(source, File) else ""
    fixed: dict[str, Any] = {"group_id": str(uuid.uuid4()), "localized": True, "offsets": OFFSETS, "csv_path": path}
    return a_job(app_name="game", zone=zone, plan=plan, **(fixed | fields))


async def complete(divider: Divider, job: Job, *, size: int = SIZE) -> None:
    async for _ in divider.complete(job, size):
        pass


# ---- many planners, any of which may die at any line


class Killed(BaseException):
    """What ends a planner at the line where it waits."""


class Turn:
    """A moment at which another planner may go on."""

    def __await__(self) -> Generator[None]:
        yield


class Stored:
    """What all planners share: documents by id, each insert by itself."""

    def __init__(self, devices: Mapping[int, str | None]) -> None:
        self.devices = dict(devices)
        self.division: Division | None = None
        self.lists: dict[DeviceList, Keys] = {}
        self.steps: dict[int, Step] = {}


class Planner:
    """One planner's hands: the operations of `Divisions` and `Audience`, none of which does anything once it is dead.
    Everybody may always work."""

    def __init__(self, stored: Stored, rows: int) -> None:
        self.stored = stored
        self.divisions = self
        self.dead = False
        divider: Any = Divider(self, self, None, None, step_rows=rows)  # type: ignore[arg-type]
        self.running: Coroutine[Any, Any, None] = complete(divider, a_zones_job(PushTable(100), group_id="g"))

    def go_on(self) -> bool:
        """Up to the next moment; whether there is one."""
        try:
            self.running.send(None)
        except StopIteration:
            return False
        return True

    def die(self) -> None:
        self.dead = True
        with suppress(Killed, StopIteration):
            self.running.throw(Killed())

    async def _turn(self) -> None:
        if self.dead:
            raise Killed
        await Turn()

    async def get(self, _: str) -> Division | None:
        await self._turn()
        return self.stored.division

    async def begin(self, division: Division) -> Division:
        await self._turn()
        self.stored.division = self.stored.division or division
        return self.stored.division

    async def now(self) -> datetime:
        await self._turn()
        return datetime.now(UTC)

    async def take(self, _: str, __: str, *, before: datetime) -> bool:
        await self._turn()
        return True

    async def renew(self, _: str, __: str) -> bool:
        await self._turn()
        return True

    async def release(self, _: str, __: str) -> None:
        await self._turn()

    async def last_step(self, _: str) -> Step | None:
        await self._turn()
        return self.stored.steps[max(self.stored.steps)] if self.stored.steps else None

    async def add_lists(self, lists: Mapping[DeviceList, Keys]) -> None:
        for list_, keys in lists.items():
            await self._turn()
            self.stored.lists[list_] = keys

    async def add_step(self, step: Step) -> Step:
        await self._turn()
        return self.stored.steps.setdefault(step.number, step)

    async def remove_lists(self, step: Step) -> None:
        await self._turn()
        prefix = f"{step.id}/{step.attempt}/"
        self.stored.lists = {
            list_: keys for list_, keys in self.stored.lists.items() if not list_.id.startswith(prefix)
        }

    async def divide(self, _: str, __: object, *, after: int, upto: int, rows: int) -> Divided:
        await self._turn()
        scanned = sorted(key for key in self.stored.devices if after < key <= upto)[:rows]
        found: dict[str | None, list[int]] = {}
        for key in scanned:
            text = self.stored.devices[key]
            found.setdefault(text, []).append(key)
        keys = [(text, np.array(some, np.int64)) for text, some in found.items()]
        last = len(scanned) < rows
        return Divided(keys, upto if last else scanned[-1], last)


def counting(stored: Stored) -> list[tuple[str, int, Keys]]:
    """The zones, sizes and keys of the lists that count."""
    steps = [step for _, step in sorted(stored.steps.items())]
    return [
        (zone, size, stored.lists[list_])
        for step in steps
        for zone in (*OFFSETS, REST)
        for list_, size in step.lists(zone)
    ]


@given(st.integers(0, 2**32).map(random.Random), st.integers(0, 40), st.integers(1, 4), st.sampled_from([0, 0.02]))
def test_every_device_is_in_one_list_of_one_zone(
    chance: random.Random, count: int, crowd: int, mortality: float
) -> None:
    """Planners with steps of their own race and die, while devices move to other zones."""
    devices = {key: chance.choice(TEXTS) for key in chance.sample(range(1, 101), count)}
    stored, texts = Stored(devices), {key: {text} for key, text in devices.items()}
    planners = [Planner(stored, chance.randint(1, 9)) for _ in range(crowd)]
    while planners:
        planner = chance.choice(planners)
        if chance.random() < mortality:
            planner.die()
            planners[planners.index(planner)] = Planner(stored, chance.randint(1, 9))
        elif not planner.go_on():
            planners.remove(planner)
        if devices and chance.random() < 0.3:
            key = chance.choice(sorted(devices))
            stored.devices[key] = chance.choice(TEXTS)
            texts[key].add(stored.devices[key])
    lists = counting(stored)
    assert Counter(key for _, _, keys in lists for key in keys.tolist()) == Counter(devices.keys())
    for zone, size, keys in lists:
        assert size == keys.size
        assert all(zone in {zone_of(text, RULES) for text in texts[key]} for key in keys.tolist())
    short = Counter(zone for zone, size, _ in lists if size != SIZE)
    assert all(number == 1 for number in short.values())
    if not mortality:
        assert len(stored.lists) == len(lists)


# ---- on real servers


native = pytest.mark.native
NO_FILES: Any = None
DEVICES = [
    ("u1", "-0300", 1),
    ("u1", "+0100", 2),
    ("u2", "-0000", 3),
    ("u3", None, 4),
    ("u4", "Mars", 5),
    ("u5", "", 6),
]


@pytest.fixture
async def owner(push_database: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(push_database)
    await connection.execute(
        "CREATE TABLE game_apns (user_id text, token text, locale text, region text, tz text, seq_id bigint)"
    )
    await connection.executemany("INSERT INTO game_apns (user_id, tz, seq_id) VALUES ($1, $2, $3)", DEVICES)
    yield connection
    await connection.close()


@pytest.fixture
async def audience(push_database: str, owner: object) -> AsyncIterator[Audience]:
    opened = Audience.open(push_database, pool_size=4, statement_timeout_seconds=10)
    yield opened
    await opened.close()


@pytest.fixture
async def blobs(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs.open(tmp_path.as_uri())


async def a_file(store: Store, blobs: FolderBlobs, group_id: str, content: bytes) -> File:
    async def once() -> AsyncIterator[bytes]:
        yield content

    path = f"{blobs.bucket}/users.csv"
    await blobs.write(path, once())
    file = await blobs.stat(path)
    await store.files.begin(group_id, file, cut_records=2)
    return file


def a_divider(store: Store, audience: Audience, blobs: FolderBlobs, *, rows: int = 4) -> Divider:
    return Divider(store, audience, blobs, FileCuts(store, blobs), step_rows=rows)


async def divided(store: Store, divider: Divider, audience: Audience, job: Job) -> dict[str, list[int]]:
    """The keys of the devices that each zone's batches are sent to, once the first zone is planned."""
    found, reader = {}, RecipientReader(store, audience, NO_FILES, batch_size=100)
    for zone in (*OFFSETS, REST):
        cuts = ZoneCuts(store, divider, page_batches=2)
        parts = [part async for page in cuts.pages(replace(job, zone=zone), 0, SIZE) for part in page]
        batches = [Batch(job_id=job.key, ordinal=0, range=part.range, size=part.size) for part in parts]
        found[zone] = [
            key for batch in batches for keys in (await in_parts(reader, job, batch, fitting=100))[0] for key in keys
        ]
        assert sum(part.size for part in parts) == len(found[zone])
    return found


@native
async def test_a_table_is_divided_once(store: Store, audience: Audience, blobs: FolderBlobs, owner: Any) -> None:
    divider, job = a_divider(store, audience, blobs), a_zones_job(PushTable(5))
    await complete(divider, job)
    await owner.execute("UPDATE game_apns SET tz = '+0100'")
    expected = {"-0300": [1], "+0000": [3], "+0100": [2], REST: [4, 5]}
    assert await divided(store, divider, audience, job) == expected


@native
async def test_devices_that_share_a_key_go_together(
    store: Store, audience: Audience, blobs: FolderBlobs, owner: Any
) -> None:
    """They cannot be told apart: so all of them go with the first of their zones, and are read with one part."""
    await owner.execute("UPDATE game_apns SET seq_id = 3 WHERE seq_id > 1")
    job = a_zones_job(PushTable(5))
    divider = a_divider(store, audience, blobs)
    assert await divided(store, divider, audience, job) == {"-0300": [1], "+0000": [3] * 5, "+0100": [], REST: []}
    [(list_, size)] = [each for step in await store.divisions.steps(job.group_id) for each in step.lists("+0000")]
    batch = Batch(job_id=job.key, ordinal=0, range=list_, size=size)
    parts, _ = await in_parts(RecipientReader(store, audience, blobs, batch_size=100), job, batch, fitting=2)
    assert parts == [[3] * 5]


@native
async def test_a_file_is_divided_once_and_not_read_again(
    store: Store, audience: Audience, blobs: FolderBlobs, owner: Any, tmp_path: Path
) -> None:
    group_id = str(uuid.uuid4())
    file = await a_file(store, blobs, group_id, b"id\nu1\nx1\nu3\nu4\nu1\nu2\nx2\n")
    divider, job = a_divider(store, audience, blobs), a_zones_job(file, group_id=group_id)
    await complete(divider, job)
    await owner.execute("UPDATE game_apns SET tz = '+0100'")
    for path in tmp_path.rglob("*.csv"):
        path.unlink()
    expected = {"-0300": [1], "+0000": [3], "+0100": [2], REST: [4, 5]}
    assert await divided(store, divider, audience, job) == expected
    cuts = ZoneCuts(store, divider, page_batches=2)
    assert await cuts.sum_up(job, 2) == (2, [ABOUT])
    assert await cuts.sum_up(replace(job, counts_unknown=False), 2) == (0, [ABOUT])


@native
async def test_two_divide_one_file(store: Store, audience: Audience, blobs: FolderBlobs, monkeypatch: Any) -> None:
    """As they do where one was silent for too long."""
    monkeypatch.setattr("services.worker.jobs.cutting.PAGE", 2)
    monkeypatch.setattr("services.worker.jobs.dividing._LEASE", timedelta(seconds=-60))
    group_id = str(uuid.uuid4())
    users = [f"u{number % 5 + 1}" if number < 5 else f"x{number}" for number in range(60)]
    file = await a_file(store, blobs, group_id, "\n".join(["id", *users, ""]).encode())
    dividers, job = [a_divider(store, audience, blobs) for _ in range(2)], a_zones_job(file, group_id=group_id)
    outcomes = await asyncio.gather(*(complete(each, job) for each in dividers), return_exceptions=True)
    assert all(outcome is None or isinstance(outcome, Unavailable) for outcome in outcomes)
    expected = {"-0300": [1], "+0000": [3], "+0100": [2], REST: [4, 5, 6]}
    assert await divided(store, dividers[0], audience, job) == expected
    assert await ZoneCuts(store, dividers[0], page_batches=2).sum_up(job, 0) == (55, [])


@native
async def test_a_file_whose_users_devices_cannot_be_told_from_others_is_refused(
    store: Store, audience: Audience, blobs: FolderBlobs, owner: Any
) -> None:
    await owner.execute("UPDATE game_apns SET seq_id = 3 WHERE user_id = 'u5'")
    group_id = str(uuid.uuid4())
    file = await a_file(store, blobs, group_id, b"id\nu1\nu2\n")
    with pytest.raises(Invalid, match=r"several rows of table .* have the seq_id 3") as refused:
        await complete(a_divider(store, audience, blobs), a_zones_job(file, group_id=group_id))
    assert refused.value.field == "csvPath"


@native
async def test_one_divides_at_a_time(store: Store, audience: Audience, blobs: FolderBlobs) -> None:
    """Whoever comes second is put off; whoever was cut off lets another one go on from there."""
    job, divider = a_zones_job(PushTable(9)), a_divider(store, audience, blobs)
    async with aclosing(divider.complete(job, SIZE)) as steps:
        await anext(steps)
        with pytest.raises(Unavailable, match="another planner"):
            await complete(a_divider(store, audience, blobs), job)
    first = await store.divisions.last_step(job.group_id)
    await complete(a_divider(store, audience, blobs), job)
    assert first is not None
    assert (await store.divisions.steps(job.group_id))[0].attempt == first.attempt


@native
async def test_who_is_overtaken_hears_of_it_at_once(
    store: Store, audience: Audience, blobs: FolderBlobs, monkeypatch: Any
) -> None:
    """After the first step of somebody else, not after the last."""
    monkeypatch.setattr("services.worker.jobs.dividing._LEASE", timedelta(seconds=-60))
    job, late, other = a_zones_job(PushTable(6)), *(a_divider(store, audience, blobs, rows=1) for _ in range(2))
    async with aclosing(late.complete(job, SIZE)) as steps:
        await anext(steps)
        await complete(other, job)
        with pytest.raises(Unavailable, match="by now"):
            await anext(steps)


@native
async def test_who_is_overtaken_goes_on_from_the_last_step(
    store: Store, audience: Audience, blobs: FolderBlobs, monkeypatch: Any
) -> None:
    monkeypatch.setattr("services.worker.jobs.dividing._LEASE", timedelta(seconds=-60))
    job, late, other = a_zones_job(PushTable(6)), *(a_divider(store, audience, blobs, rows=1) for _ in range(2))
    division = await store.divisions.begin(Division(id=job.file_plan_id, source=PushTable(6), size=SIZE))
    async with aclosing(late._add_steps(job, division)) as steps:
        await anext(steps)
        await complete(other, job)
        assert len(await store.divisions.steps(division.id)) > 3
        await anext(steps)
        with pytest.raises(StopAsyncIteration):
            await anext(steps)


@native
async def test_a_division_that_was_forgotten_meanwhile_leaves_nothing(
    store: Store, audience: Audience, blobs: FolderBlobs
) -> None:
    job, divider = a_zones_job(PushTable(9)), a_divider(store, audience, blobs)
    steps = divider.complete(job, SIZE)
    await anext(steps)
    await store.divisions.remove_of([job.group_id])
    with pytest.raises(Invalid, match="gone"):
        await anext(steps)
    assert await store.divisions.last_step(job.group_id) is None
    batch = Batch(job_id=job.key, ordinal=0, range=DeviceList("none"), size=1)
    with pytest.raises(Invalid, match="gone"):
        await RecipientReader(store, audience, blobs, batch_size=100).recipients(job, batch, fitting=100)


@native
async def test_a_user_with_more_devices_than_anybody_has_is_left_out(
    store: Store, audience: Audience, blobs: FolderBlobs, monkeypatch: Any
) -> None:
    """And counts as unknown; all others of the file are sent to."""
    monkeypatch.setattr("services.worker.jobs.dividing.DEVICES_AT_ONCE", 1)
    group_id = str(uuid.uuid4())
    file = await a_file(store, blobs, group_id, b"id\nu2\nu1\nu3\nx1\nu4\n")
    divider, job = a_divider(store, audience, blobs), a_zones_job(file, group_id=group_id)
    assert await divided(store, divider, audience, job) == {"-0300": [], "+0000": [3], "+0100": [], REST: [4, 5]}
    assert (await ZoneCuts(store, divider, page_batches=2).sum_up(job, 0))[0] == 2


@native
async def test_a_list_is_read_in_parts(store: Store, audience: Audience, blobs: FolderBlobs, owner: Any) -> None:
    job = a_zones_job(PushTable(9), offsets=("+0900",), filters={"NOTlocale": "pt"})
    await owner.execute("UPDATE game_apns SET locale = 'en', tz = NULL")
    await complete(a_divider(store, audience, blobs), job, size=6)
    [(list_, size)] = [each for step in await store.divisions.steps(job.group_id) for each in step.lists(REST)]
    await owner.execute("DELETE FROM game_apns WHERE seq_id = 3; UPDATE game_apns SET locale = 'pt' WHERE seq_id = 5")
    batch = Batch(job_id=job.key, ordinal=0, range=list_, size=size)
    parts, receipt = await in_parts(RecipientReader(store, audience, blobs, batch_size=2), job, batch, fitting=100)
    assert parts == [[1, 2], [4, 6]]
    assert receipt == Receipt(sent=4, skipped=2, reasons={GONE: 2})
