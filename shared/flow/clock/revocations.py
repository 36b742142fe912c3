"""Taking a caller out: their token or user is removed, and what they have scheduled is paused.

    note the revocation ──> remove the token or user ──> pause all their schedules ──> pause what requests in flight add

The note comes first, so that a process that dies half-way leaves something to go on from: a loop of the schedulers does
each step again. A request that was let in before the removal may store a schedule after everything was paused. So that
loop looks again for as long as such a request can last. A schedule that an admin has resumed meanwhile stays as it is.

Tokens may share a namespace. Then those that stay keep what they made: a schedule knows the token that gave it its
content. A schedule whose maker nobody knows is paused with the first of these tokens.

Other things that a caller has set up go on too, such as subscriptions of the bus. The parts that know them bring what
pauses them. They are paused with the first look at the schedules, unless other tokens share the namespace.

Only the document of a schedule is paused. Its occurrences stay where they are: whoever fires one looks the document up
right before. Only what was fired by hand is deleted, because a pause does not hold it.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import assert_never

from shared.domain.accounts.callers import Revocation, RevokedKind, Token, User, token_namespace, user_namespace
from shared.domain.clock.schedules import COMMITTED_WITHIN, Schedule, ScheduleState
from shared.runtime.faults import fault
from shared.store import Store

_STEP = 500
_REASON = "the caller whose it was is no more"

PauseNamespace = Callable[[str, str], Awaitable[int]]
"""Pauses what a namespace has set up, for this reason; returns how much was paused. Safe to repeat."""


class RevocationFlow:
    """Takes callers out. `now` tells the database's time, `others` pause what is no schedule. Each move is safe to
    repeat; all raise `Unavailable`."""

    def __init__(
        self, store: Store, now: Callable[[], Awaitable[datetime]], others: Sequence[PauseNamespace] = ()
    ) -> None:
        self._store = store
        self._now = now
        self._others = others

    async def revoke_token(self, token: Token) -> None:
        """Remove the token and pause what it has scheduled: all of its namespace, unless other tokens share that."""
        named, shared = token_namespace(token.id), await self._store.tokens.is_shared(token)
        await self._revoke(named, RevokedKind.TOKEN, token.id, namespace=token.namespace, shared=shared)

    async def delete_user(self, user: User) -> None:
        """Remove the user and pause all that they have scheduled."""
        await self._revoke(user_namespace(user.email), RevokedKind.USER, user.id)

    async def complete_all(self) -> int:
        """Go on with what was begun, and pause what requests in flight have added; returns how many were paused."""
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
        """Pause page by page; after the first time only what is active is looked at."""
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
        """Pause what is no schedule, once: what an admin resumes then stays as it is."""
        if revocation.shared or await self._is_back(revocation):
            return 0
        return sum([await pause(revocation.owns, _REASON) for pause in self._others])

    async def _pause_page(self, revocation: Revocation, page: list[Schedule]) -> int:
        # Read for each page: an admin may have resumed one of these since the last.
        known = await self._store.revocations.get(revocation.id)
        spared = known.spared if known is not None else ()
        schedules = [each for each in page if each.id not in spared and revocation.covers(each.made_by)]
        if not schedules:
            return 0
        paused = await self._store.schedules.pause([schedule.id for schedule in schedules])
        await self._store.occurrences.remove_asked([schedule.owner for schedule in schedules])
        return paused

    async def _is_back(self, revocation: Revocation) -> bool:
        """Whether a user of the same address was made since: the namespace is theirs, and so is what they schedule."""
        email = revocation.id.removeprefix(user_namespace(""))
        return revocation.kind is RevokedKind.USER and bool(await self._store.users.with_emails([email]))
