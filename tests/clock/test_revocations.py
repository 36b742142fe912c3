"""Taking callers out: whatever dies half-way, nothing that they have scheduled goes on."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from shared.accounts.rules.callers import Revocation, RevokedKind, Token, User, token_namespace, user_namespace
from shared.clock import revocations
from shared.clock.revocations import RevocationFlow
from shared.clock.rules.occurrences import OccurrenceKind
from shared.clock.rules.schedules import COMMITTED_WITHIN, ScheduleState, schedule_id
from shared.clock.schedules import ScheduleFlow, Wanted
from shared.runtime.faults import FaultInjected, arm
from shared.store import Store
from shared.time import DatabaseTime
from tests.clock.made import HOURLY, LIST, accepted

pytestmark = pytest.mark.native

TOKEN = Token(id="0190b5a2-0000-7000-8000-000000000001", name="stolen", digest="d1")
USER = User(id="0190b5a2-0000-7000-8000-000000000002", email="bo@example.com")
OURS, THEIRS = token_namespace(TOKEN.id), user_namespace(USER.email)


@pytest.fixture
def revoking(store: Store, monkeypatch: pytest.MonkeyPatch) -> RevocationFlow:
    monkeypatch.setattr(revocations, "_STEP", 2)
    return RevocationFlow(store, DatabaseTime(store).now)


@pytest.fixture
def armed() -> Iterator[None]:
    yield
    arm("")


async def scheduled(flow: ScheduleFlow, namespace: str, *keys: str) -> None:
    for key in keys:
        await accepted(flow, Wanted(namespace, key, HOURLY))


async def active(store: Store, namespace: str) -> list[str]:
    return [each.key for each in await store.schedules.page(namespace, state=ScheduleState.ACTIVE, limit=100)]


async def test_what_a_revoked_token_has_scheduled_is_paused_and_nothing_else(
    store: Store, flow: ScheduleFlow, revoking: RevocationFlow
) -> None:
    await store.tokens.add(TOKEN)
    await scheduled(flow, OURS, *"abcde")
    await scheduled(flow, THEIRS, "a")
    await revoking.revoke_token(TOKEN)
    assert await store.tokens.get(TOKEN.id) is None
    assert await active(store, OURS) == []
    assert len(await store.schedules.page(OURS, state=ScheduleState.PAUSED, limit=100)) == 5
    assert await active(store, THEIRS) == ["a"]


async def test_what_a_deleted_user_has_scheduled_is_paused(
    store: Store, flow: ScheduleFlow, revoking: RevocationFlow
) -> None:
    await store.users.add(USER)
    await scheduled(flow, THEIRS, "a")
    await revoking.delete_user(USER)
    assert (await store.users.get(USER.id), await active(store, THEIRS)) == (None, [])


async def test_what_was_fired_by_hand_is_not_tried_again(
    store: Store, flow: ScheduleFlow, revoking: RevocationFlow
) -> None:
    await scheduled(flow, OURS, "a")
    id = schedule_id(OURS, "a")
    await flow.fire(id)
    await revoking.revoke_token(TOKEN)
    left = await store.occurrences.find_upcoming(f"schedule/{id}", 10)
    assert [each.kind for each in left] == [OccurrenceKind.SERIES]


@pytest.mark.parametrize("point", ["after_note", "after_removal", "after_page", "after_page@2"])
@pytest.mark.usefixtures("armed")
async def test_upkeep_completes_what_a_dead_process_began(
    store: Store, flow: ScheduleFlow, revoking: RevocationFlow, point: str
) -> None:
    await store.tokens.add(TOKEN)
    await scheduled(flow, OURS, *"abcde")
    arm(f"revocation.{point}=raise")
    with pytest.raises(FaultInjected):
        await revoking.revoke_token(TOKEN)
    assert await active(store, OURS) != []
    await revoking.complete_all()
    assert await store.tokens.get(TOKEN.id) is None
    assert await active(store, OURS) == []


async def test_what_a_request_in_flight_adds_is_paused_too(
    store: Store, flow: ScheduleFlow, revoking: RevocationFlow
) -> None:
    await store.tokens.add(TOKEN)
    await scheduled(flow, OURS, "a")
    await revoking.revoke_token(TOKEN)
    # Its caller was looked up before the token was removed.
    await accepted(flow, Wanted(OURS, "late", LIST))
    assert await revoking.complete_all() == 1
    assert await active(store, OURS) == []


async def test_what_an_admin_has_resumed_stays_so(store: Store, flow: ScheduleFlow, revoking: RevocationFlow) -> None:
    await scheduled(flow, OURS, *"abc")
    await revoking.revoke_token(TOKEN)
    await store.revocations.spare(OURS, schedule_id(OURS, "b"))
    await flow.resume(schedule_id(OURS, "b"))
    await accepted(flow, Wanted(OURS, "late", LIST))
    assert await revoking.complete_all() == 1
    assert await active(store, OURS) == ["b"]


async def test_what_an_admin_resumes_while_others_are_paused_stays_so(
    store: Store, flow: ScheduleFlow, revoking: RevocationFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scheduled(flow, OURS, *"abcde")
    pause = store.schedules.pause

    async def interrupted(ids: list[str]) -> int:
        await store.revocations.spare(OURS, schedule_id(OURS, "e"))
        return await pause(ids)

    monkeypatch.setattr(store.schedules, "pause", interrupted)
    await revoking.revoke_token(TOKEN)
    assert await active(store, OURS) == ["e"]


async def test_a_user_who_was_made_again_schedules_as_before(
    store: Store, flow: ScheduleFlow, revoking: RevocationFlow
) -> None:
    await store.users.add(USER)
    await revoking.delete_user(USER)
    await store.users.add(User(id="0190b5a2-0000-7000-8000-000000000003", email=USER.email))
    await scheduled(flow, THEIRS, "a")
    assert await revoking.complete_all() == 0
    assert await active(store, THEIRS) == ["a"]
    assert await store.users.with_emails([USER.email])


async def test_upkeep_that_wakes_up_late_leaves_a_later_revocation_alone(store: Store) -> None:
    earlier = Revocation(id=THEIRS, kind=RevokedKind.USER, subject_id=USER.id, at=await store.now())
    later = replace(earlier, at=earlier.at + COMMITTED_WITHIN)
    await store.revocations.begin(later)
    await store.revocations.mark_paused(earlier)
    await store.revocations.forget(earlier)
    assert await store.revocations.all() == [later]
    await store.revocations.mark_paused(later)
    assert await store.revocations.all() == [replace(later, paused=True)]
    await store.revocations.forget(later)
    assert await store.revocations.all() == []


async def test_a_revocation_is_forgotten_when_no_request_can_be_in_flight(
    store: Store, flow: ScheduleFlow, revoking: RevocationFlow
) -> None:
    await revoking.revoke_token(TOKEN)
    await revoking.complete_all()
    kept = await store.revocations.get(OURS)
    assert kept is not None
    assert (kept.kind, kept.paused) == (RevokedKind.TOKEN, True)
    later = await flow.now() + COMMITTED_WITHIN * 2

    async def much_later() -> object:
        return later

    await RevocationFlow(store, much_later).complete_all()  # type: ignore[arg-type]
    assert await store.revocations.get(OURS) is None


async def test_tokens_that_share_a_namespace_keep_what_they_made(
    store: Store, flow: ScheduleFlow, revoking: RevocationFlow
) -> None:
    leaked, other = (replace(TOKEN, id=id, digest=id, namespace="token:billing") for id in ("leaked", "other"))
    await store.tokens.add(leaked)
    await store.tokens.add(other)
    for key, made_by in (("a", "leaked"), ("b", "other"), ("c", "leaked"), ("d", "")):
        await accepted(flow, Wanted("token:billing", key, HOURLY, made_by))
    await flow.put(Wanted("token:billing", "c", LIST, "other"))
    await flow.put(Wanted("token:billing", "b", LIST, "leaked"))
    await revoking.revoke_token(leaked)
    # Nobody knows who made "d": it does not go on.
    assert await active(store, "token:billing") == ["c"]
    # Its caller was looked up before the token was removed.
    await accepted(flow, Wanted("token:billing", "late", LIST, "leaked"))
    await accepted(flow, Wanted("token:billing", "later", LIST, "other"))
    assert await revoking.complete_all() == 1
    assert await active(store, "token:billing") == ["c", "later"]


async def test_the_last_token_of_a_namespace_takes_all_with_it(
    store: Store, flow: ScheduleFlow, revoking: RevocationFlow
) -> None:
    tokens = [replace(TOKEN, id=id, digest=id, namespace="token:billing") for id in ("1", "2")]
    for token in tokens:
        await store.tokens.add(token)
        await accepted(flow, Wanted("token:billing", token.id, HOURLY, token.id))
    await accepted(flow, Wanted("token:billing", "earlier", HOURLY, "0"))
    await revoking.revoke_token(tokens[0])
    assert await active(store, "token:billing") == ["2", "earlier"]
    await revoking.revoke_token(tokens[1])
    assert await active(store, "token:billing") == []
    # Neither revocation has taken the other's place.
    assert len(await store.revocations.all()) == 2
    await store.revocations.spare("token:billing", schedule_id("token:billing", "1"))
    assert [each.spared for each in await store.revocations.all()] == [(schedule_id("token:billing", "1"),)] * 2


async def test_a_token_that_is_made_after_a_leak_schedules_in_the_namespace_at_once(
    store: Store, flow: ScheduleFlow, revoking: RevocationFlow
) -> None:
    leaked, fresh = (replace(TOKEN, id=id, digest=id, namespace="token:billing") for id in ("leaked", "fresh"))
    await store.tokens.add(leaked)
    await accepted(flow, Wanted("token:billing", "a", HOURLY, "leaked"))
    await revoking.revoke_token(leaked)
    await store.tokens.add(fresh)
    await accepted(flow, Wanted("token:billing", "b", HOURLY, "fresh"))
    await accepted(flow, Wanted("token:billing", "late", HOURLY, "leaked"))
    assert await revoking.complete_all() == 1
    assert await active(store, "token:billing") == ["b"]


async def test_what_another_token_wants_too_is_its_own(
    store: Store, flow: ScheduleFlow, revoking: RevocationFlow
) -> None:
    old, new = (replace(TOKEN, id=id, digest=id, namespace="token:billing") for id in ("old", "new"))
    for token in (old, new):
        await store.tokens.add(token)
    for key in "ab":
        await accepted(flow, Wanted("token:billing", key, HOURLY, "old"))
    assert not (await flow.put(Wanted("token:billing", "a", HOURLY, "new"))).changed
    await revoking.revoke_token(old)
    assert await active(store, "token:billing") == ["a"]
    for token_id, expected in (("old", ["a"]), ("new", ["a", "b"])):
        # One that the revoked token asked for may have been let in before.
        await store.revocations.spare("token:billing", schedule_id("token:billing", "b"), token_id=token_id)
        await flow.resume(schedule_id("token:billing", "b"))
        await revoking.complete_all()
        assert await active(store, "token:billing") == expected
