"""Revoking a caller: the token or user is removed, and its schedules are paused.

    note the revocation ──> remove the token or user ──> pause all schedules ──> pause what requests in flight add

The note comes first: if a process dies half-way, a loop of the schedulers does each step again. A request that was
authorized before the removal may still store a schedule after that, so the loop looks again for as long as such a
request can last. A schedule that an admin has resumed meanwhile stays active.

If tokens share a namespace, only the schedules of the removed token are paused: a schedule knows the token that gave it
its content. A schedule without a known maker is paused with the first of these tokens.

`others` pause what is no schedule, such as subscriptions of the bus: once, right after the schedules, unless other
tokens share the namespace.

Only the document of a schedule is paused. Its occurrences stay, because the document is read right before they fire.
Only occurrences that were fired by hand are deleted, because a pause does not hold them.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import assert_never

from shared.accounts.rules.callers import Revocation, RevokedKind, Token, User, token_namespace, user_namespace
from shared.clock.rules.schedules import COMMITTED_WITHIN, Schedule, ScheduleState
from shared.runtime.faults import fault
from shared.store import Store

_STEP = 500
_REASON = "its token was revoked or its user was deleted"

PauseNamespace = Callable[[str, str], Awaitable[int]]
"""Pauses the things of a namespace, for this reason; returns how many. Safe to repeat."""


class RevocationFlow:
    """Revokes callers. `now` returns the database's time; `others` pause things other than schedules. Each move is safe
    to repeat."""

    def __init__(
        self, store: Store, now: Callable[[], Awaitable[datetime]], others: Sequence[PauseNamespace] = ()
    ) -> None:
        self._store = store
        self._now = now
        self._others = others

    async def revoke_token(self, token: Token) -> None:
        """Remove the token and pause its schedules: all of its namespace, unless other tokens share it."""
        named, shared = token_namespace(token.id), await self._store.tokens.is_shared(token)
        await self._revoke(named, RevokedKind.TOKEN, token.id, namespace=token.namespace, shared=shared)

    async def delete_user(self, user: User) -> None:
        await self._revoke(user_namespace(user.email), RevokedKind.USER, user.id)

    async def complete_all(self) -> int:
        """Continue unfinished revocations, and pause what requests in flight have added; returns how many were
        paused."""
        revocations = await self._store.revocations.all()
        return sum([await self._carry_on(revocation) for revocation in revocations])

    async def _revoke(
        self, id: str, kind: RevokedKind, subject_id: str, *, namespace: str = "", shared: bool = False
    ) -> None:
        revocation = Revocation(
            id=id, kind=kind, subject_id=subject_id, at=await self._now(), namespace=namespace, shared=shared
        )
        await self._store.revocations.begin(revocation)
        await fault("revocation.after_note")
        await self._carry_on(revocation)

    async def _carry_on(self, revocation: Revocation) -> int:
        await self._remove_subject(revocation)
        await fault("revocation.after_removal")
        paused = await self._pause(revocation)
        if not revocation.paused:
            paused += await self._pause_others(revocation)
            await self._store.revocations.mark_paused(revocation)
        elif await self._now() > revocation.at + COMMITTED_WITHIN:
            await self._store.revocations.forget(revocation)
        return paused

    async def _remove_subject(self, revocation: Revocation) -> None:
        match revocation.kind:
            case RevokedKind.TOKEN:
                await self._store.tokens.remove(revocation.subject_id)
            case RevokedKind.USER:
                await self._store.users.remove(revocation.subject_id)
            case _:
                assert_never(revocation.kind)

    async def _pause(self, revocation: Revocation) -> int:
        """Pause page by page; after the first time only active schedules are read."""
        state = ScheduleState.ACTIVE if revocation.paused else None
        after, paused = "", 0
        while not await self._is_back(revocation):
            page = await self._store.schedules.page(revocation.owns, state=state, after=after, limit=_STEP)
            if not page:
                break
            paused += await self._pause_page(revocation, page)
            await fault("revocation.after_page")
            after = page[-1].key
        return paused

    async def _pause_others(self, revocation: Revocation) -> int:
        """Pause the other things once, so that those which an admin resumes later stay active."""
        if revocation.shared or await self._is_back(revocation):
            return 0
        return sum([await pause(revocation.owns, _REASON) for pause in self._others])

    async def _pause_page(self, revocation: Revocation, page: list[Schedule]) -> int:
        # Read again for each page: an admin may have resumed one of these since the last.
        known = await self._store.revocations.get(revocation.id)
        spared = known.spared if known is not None else ()
        schedules = [each for each in page if each.id not in spared and revocation.covers(each.made_by)]
        if not schedules:
            return 0
        paused = await self._store.schedules.pause([schedule.id for schedule in schedules])
        await self._store.occurrences.remove_asked([schedule.owner for schedule in schedules])
        return paused

    async def _is_back(self, revocation: Revocation) -> bool:
        """Whether a new user with this address exists: the namespace and its schedules belong to that user."""
        email = revocation.id.removeprefix(user_namespace(""))
        return revocation.kind is RevokedKind.USER and bool(await self._store.users.with_emails([email]))
