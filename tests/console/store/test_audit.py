"""The store of who did what."""

from datetime import UTC, datetime, timedelta

from shared.console.rules.audit import ActedOn, Actor, ActOutcome, AuditRecord
from shared.store import Store

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def record(number: int, *, act: str = "job.stop", app: str = "a", by: str = "user:a") -> AuditRecord:
    return AuditRecord(
        id=f"{number:04}",
        at=NOON + timedelta(minutes=number),
        act=act,
        who=Actor(namespace=by, name="a", way="proxy", address="127.0.0.1"),
        on=ActedOn(kind="job", id=f"j{number}", app_id=app),
        via="curl",
        reason="because",
    )


async def test_records_come_back_as_they_went_in_the_newest_first(store: Store) -> None:
    records = [record(number) for number in range(5)]
    for each in records:
        await store.audit.begin(each)
    assert await store.audit.page(limit=10) == records[::-1]
    first = await store.audit.page(limit=2)
    assert (first, first.more) == (records[:2:-1], True)
    assert await store.audit.page(before=first[-1].id, limit=10) == records[2::-1]


async def test_the_end_is_noted_with_what_was_made(store: Store) -> None:
    await store.audit.begin(record(1))
    changed = {"a.b": 1, "$c": [None]}
    await store.audit.end(record(1), outcome=ActOutcome.DONE, status=201, made="m", before={}, after=changed)
    [ended] = await store.audit.page(on="m", limit=10)
    assert (ended.before, ended.after) == ({}, changed)
    assert (ended.outcome, ended.status, ended.on.app_id) == (ActOutcome.DONE, 201, "a")


async def test_records_are_found_by_what_they_are_about(store: Store) -> None:
    found = record(1, act="app.delete", app="b", by="token:1")
    for each in (record(0), found, record(2)):
        await store.audit.begin(each)
    for wanted in ({"act": "app.delete"}, {"app_id": "b"}, {"by": "token:1"}, {"on": "j1"}):
        assert await store.audit.page(**wanted, limit=10) == [found]
    assert await store.audit.page(act="app.delete", app_id="a", limit=10) == []


async def test_what_is_old_is_forgotten_in_steps(store: Store) -> None:
    for number in range(5):
        await store.audit.begin(record(number))
    before = NOON + timedelta(minutes=3)
    assert await store.audit.forget(before=before, limit=2) == 2
    assert await store.audit.forget(before=before, limit=2) == 1
    assert [each.id for each in await store.audit.page(limit=10)] == ["0004", "0003"]
