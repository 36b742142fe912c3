"""The store of browsers' sessions."""

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from shared.accounts.rules.callers import IDLE, LONGEST, WebSession
from shared.store import Store

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def session(id: str, *, namespace: str = "token:1", began_at: datetime = NOON) -> WebSession:
    return WebSession(
        id=id, namespace=namespace, token_digest="d", began_at=began_at, seen_at=began_at, ends_at=began_at + LONGEST
    )


async def test_a_session_is_seen_later_never_earlier(store: Store) -> None:
    own = session("a")
    await store.sessions.add(own)
    await store.sessions.note_sight(own, NOON + timedelta(minutes=2))
    await store.sessions.note_sight(own, NOON + timedelta(minutes=1))
    assert await store.sessions.with_ids(["a", "gone"]) == {"a": replace(own, seen_at=NOON + timedelta(minutes=2))}
    await store.sessions.note_sight(session("gone"), NOON)


async def test_everybody_finds_and_ends_their_own(store: Store) -> None:
    for number in range(3):
        await store.sessions.add(session(str(number), began_at=NOON + timedelta(minutes=number)))
    await store.sessions.add(session("other", namespace="token:2"))
    assert [each.id for each in await store.sessions.find_of("token:1", limit=2)] == ["2", "1"]
    assert not await store.sessions.remove("other", "token:1")
    assert await store.sessions.remove("2", "token:1")
    assert not await store.sessions.remove("2", "token:1")
    assert [each.id for each in await store.sessions.find_of("token:1", limit=5)] == ["1", "0"]


async def test_what_is_over_is_forgotten(store: Store) -> None:
    used = replace(session("used"), seen_at=NOON + LONGEST - timedelta(seconds=1))
    for each in (session("idle"), used, session("late", began_at=NOON + LONGEST - IDLE + timedelta(seconds=1))):
        await store.sessions.add(each)
    now = NOON + LONGEST - timedelta(seconds=1)
    assert await store.sessions.remove_over(now) == 1
    assert await store.sessions.remove_over(now) == 0
    assert await store.sessions.remove_over(now + timedelta(seconds=1)) == 1
    assert [each.id for each in await store.sessions.find_of("token:1", limit=5)] == ["late"]
