"""The sender of single messages: sends the due ones of one credential, behind at most one grant of its jobs.

    want ──> take the lease ──> open the account ──> (look ──> screen ──> dispatch)* ──> release

One worker at a time sends the single messages of a credential. It goes on while there are some, and looks for new ones
meanwhile. When it finds none it releases the lease, unless another process has wanted more since its look. A worker
that finds the lease held leaves the work to its owner; if the owner is silent, it ends the owner's session and takes
over (`shared.messages.rules.singles`).
"""

import asyncio
import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import assert_never

import msgspec
import structlog
from msgspec import Struct

from services.worker.consumer import Stage
from services.worker.messages.dispatch import Dispatch, DispatchEnd
from services.worker.messages.entries import BatchTaken, EntryWriter, Note, Prepared, Purpose
from services.worker.messages.opening import Dispatches
from shared.core.errors import Unavailable
from shared.core.instants import LATEST, from_ms
from shared.messages.barring import find_barred
from shared.messages.credentials import CredentialFlow
from shared.messages.feeding import CredentialFeed
from shared.messages.rules.answers import Channel, Reason
from shared.messages.rules.credentials import Credential, OnUnknown
from shared.messages.rules.jobs import Repeating, Resending, due_at
from shared.messages.rules.ledger import Message
from shared.messages.rules.singles import SendLease, SendSingles, SingleWish
from shared.messages.singles import SingleFlow
from shared.messages.store_ledger import WRITTEN_AT_ONCE, WritingSession
from shared.runtime.faults import fault
from shared.runtime.loops import Backoff, next_delay, pause
from shared.store import Store

log = structlog.get_logger(__name__)

_CREDENTIALS_AT_ONCE = 200
_LONGEST_SECONDS, _CROWDED_SECONDS, _SIGN_SECONDS = 300.0, 5.0, 2.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
_FEWEST_AHEAD = 2
_BYTES_AHEAD = 4 * 2**20
_SOON, _LATER = timedelta(seconds=1), timedelta(seconds=5)
_NO_RETRY = Resending()
_NO_ACCOUNT = "the credential is gone"
_NO_CONTENT = "what it said is gone"
_NOT_SHARED = "the app may not use the credential any more"


class _Turn(Struct, eq=False):
    """This worker's work at one credential. `woken` is set when there may be more to send. `seen` is the lease's count
    of such wishes at the last look. `handed` are the messages in hand, until their contents are removed."""

    woken: asyncio.Event
    handed: dict[str, Prepared]
    seen: int = 0
    dispatch: Dispatch | None = None


class _Work(Struct, frozen=True):
    """A credential whose lease this worker holds."""

    owner: str
    credential: Credential
    session: WritingSession
    writer: EntryWriter
    turn: _Turn


class SingleSender(Stage[SendSingles]):
    """The stage behind `message.single`."""

    task = SendSingles
    in_flight = _CREDENTIALS_AT_ONCE

    def __init__(
        self, store: Store, dispatches: Dispatches, credentials: CredentialFlow, feed: CredentialFeed, flow: SingleFlow
    ) -> None:
        self._store = store
        self._dispatches = dispatches
        self._credentials = credentials
        self._feed = feed
        self._flow = flow
        self._turns: dict[str, _Turn] = {}
        self._stopping = False

    async def run(self, task: SendSingles) -> None:
        if self._stopping:
            raise Unavailable("this process is stopping; single messages are sent elsewhere")
        if (known := self._turns.get(task.credential_id)) is not None:
            known.woken.set()
            return
        turn = self._turns[task.credential_id] = _Turn(asyncio.Event(), {})
        try:
            with structlog.contextvars.bound_contextvars(credential=task.credential_id):
                await self._work(task.credential_id, turn)
                while turn.woken.is_set() and not self._stopping:
                    turn.woken.clear()
                    await self._work(task.credential_id, turn)
        finally:
            del self._turns[task.credential_id]

    async def put_off(self, task: SendSingles) -> None:
        """Let a worker look again soon."""
        await self._flow.wake_at(task.credential_id, await self._store.now() + _LATER)

    async def give_up(self, task: SendSingles, reason: str) -> None:
        """Leave the messages as they are: upkeep brings them back."""
        log.error("single messages cannot be sent", credential=task.credential_id, reason=reason)

    def stop(self) -> None:
        self._stopping = True
        for turn in self._turns.values():
            turn.woken.set()
            if turn.dispatch is not None:
                turn.dispatch.stop()

    async def _work(self, credential_id: str, turn: _Turn) -> None:
        """Send due messages, unless another worker does."""
        lease = await self._want(credential_id)
        if lease.is_held(await self._store.now()):
            return
        async with self._store.messages.open_session() as session:
            if lease.owner:
                await self._store.messages.end_session(lease.owner)
            owner, turn.seen = session.owner(lease.wanted), lease.wanted
            if not await self._store.singles.take(lease, owner=owner):
                return
            await fault("single.after_take")
            credential = await self._store.credentials.get(credential_id)
            try:
                if credential is None:
                    await self._end_without_account(credential_id, owner, session)
                    return
                writer = self._writer(credential, owner, session)
                await self._send_all(_Work(owner, credential, session, writer, turn))
            except BatchTaken:
                log.warning("another worker sends these single messages by now")

    async def _want(self, credential_id: str) -> SendLease:
        """Raise the lease's `wanted`. A dead owner may have left a transaction open that blocks the lease, so the
        session of a silent owner is ended first."""
        known = await self._store.singles.get_lease(credential_id)
        if known is not None and known.owner and not known.is_held(await self._store.now()):
            await self._store.messages.end_session(known.owner)
        return await self._store.singles.want(credential_id)

    async def _end_without_account(self, credential_id: str, owner: str, session: WritingSession) -> None:
        """End all messages of a credential that is gone."""
        writer = EntryWriter(self._store, batch_id=credential_id, owner=owner, session=session, of_singles=True)
        now = await self._store.now()
        while found := await self._store.singles.find_due(credential_id, now=LATEST, limit=WRITTEN_AT_ONCE):
            prepared = [Prepared(message, {}, is_stored=True) for message in found]
            lost = [Note(each, Purpose.RECOVER, at=LATEST) for each in prepared if each.message.is_sending]
            if lost:
                await writer.write(lost)
            await writer.write([Note(each, Purpose.REJECT, at=now, detail=_NO_ACCOUNT) for each in prepared])
            await self._store.single_contents.remove([each.message.id for each in prepared])
        await self._store.singles.forget(credential_id)

    async def _send_all(self, work: _Work) -> None:
        """Send, and release the lease however this ends."""
        try:
            while await self._send(work):
                pass
        except Unavailable:
            await self._store.singles.resign(work.credential.id, owner=work.owner)
            raise

    async def _send(self, work: _Work) -> bool:
        """Send due messages; returns whether this worker still has the lease and should send more."""
        credential_id = work.credential.id
        prepared = await self._look(work, await self._store.now(), limit=WRITTEN_AT_ONCE)
        if not prepared or not await self._feed.enter_first(credential_id, work.owner):
            return not await self._release(work)
        try:
            end, free_us = await self._dispatch(work, prepared)
        finally:
            await self._feed.leave(credential_id, work.owner)
        await self._forget_ended(work)
        match end:
            case DispatchEnd.TAKEN:
                return False
            case DispatchEnd.DONE:
                return True
            case DispatchEnd.LATER:
                await self._flow.wake_at(credential_id, from_ms(free_us // 1_000))
            case DispatchEnd.STOPPED | DispatchEnd.YIELDED | DispatchEnd.FORBIDDEN | DispatchEnd.REJECTED:
                await self._flow.wake_at(credential_id, await self._store.now() + _SOON)
            case other:
                assert_never(other)
        await self._store.singles.resign(credential_id, owner=work.owner)
        return False

    async def _release(self, work: _Work) -> bool:
        """Release the lease. `False` if another process has wanted more since the last look. For an account that sends
        nothing now, upkeep looks again later."""
        credential_id = work.credential.id
        lease = await self._store.singles.get_lease(credential_id)
        if lease is None or lease.owner != work.owner:
            return True
        if lease.wanted == work.turn.seen:
            return await self._store.singles.release(lease, owner=work.owner)
        work.turn.seen = lease.wanted
        return False

    async def _dispatch(self, work: _Work, prepared: Sequence[Prepared]) -> tuple[DispatchEnd, int]:
        """Why sending ended, and when instants are granted again."""
        opening = self._dispatches.open(work.credential, work.writer, holder=work.owner, first_in_line=True)
        async with opening as dispatch:
            work.turn.dispatch = dispatch
            if self._stopping:
                dispatch.stop()
            feeding = asyncio.create_task(self._keep_feeding(work, dispatch))
            feeding.add_done_callback(lambda _: dispatch.finish())
            try:
                end = await dispatch.run(prepared, expects_more=True)
            finally:
                work.turn.dispatch = None
                feeding.cancel()
                await asyncio.wait([feeding])
            if not feeding.cancelled():
                feeding.result()
            if end is DispatchEnd.REJECTED:
                await self._credentials.reject(work.credential, dispatch.refusal)
            return end, dispatch.free_us

    async def _keep_feeding(self, work: _Work, dispatch: Dispatch) -> None:
        """Hand over due messages, a second's worth ahead, until none is left."""
        loop, tries = asyncio.get_running_loop(), 0
        began = looked = loop.time()
        while loop.time() < began + self._longest_seconds:
            await pause(work.turn.woken, next_delay(_PAUSES, tries, 0))
            work.turn.woken.clear()
            try:
                await self._forget_ended(work, dispatch.held)
                if loop.time() > looked + _SIGN_SECONDS:
                    looked = loop.time()
                    found = await self._store.credentials.get(work.credential.id)
                    if found is None or found.version != work.credential.version:
                        break
                added = await self._feed_once(work, dispatch)
            except BatchTaken:
                dispatch.stop(DispatchEnd.TAKEN)
                return
            except Unavailable as error:
                log.warning("the single messages that are due cannot be read", reason=str(error))
                added = 0
            if not added and not dispatch.held:
                return
            tries = 1 if added else tries + 1
        dispatch.stop()

    async def _feed_once(self, work: _Work, dispatch: Dispatch) -> int:
        """Returns how many were handed over."""
        if time.monotonic() - work.session.wrote_at > _SIGN_SECONDS:
            await work.writer.write(())  # a sign of life
        # About a second's worth of uncalled messages may be in hand.
        ahead = min(max(int(work.credential.rate), _FEWEST_AHEAD), WRITTEN_AT_ONCE)
        room = min(ahead - dispatch.uncalled, WRITTEN_AT_ONCE)
        if room <= 0:
            return 0
        prepared = await self._look(work, dispatch.now(), limit=room, beside=dispatch.held)
        dispatch.add(prepared)
        return len(prepared)

    @property
    def _longest_seconds(self) -> float:
        """The longest stay at one credential: short if this worker has as many as it can."""
        return _LONGEST_SECONDS if len(self._turns) < self.in_flight else _CROWDED_SECONDS

    async def _forget_ended(self, work: _Work, held: AbstractSet[str] = frozenset()) -> None:
        """Remove the contents of messages that were sent or ended."""
        left = [each for id_, each in work.turn.handed.items() if id_ not in held]
        for each in left:
            del work.turn.handed[each.message.id]
        if ended := [each.message.id for each in left if each.message.pending is None]:
            await self._store.single_contents.remove(ended)

    async def _look(
        self, work: _Work, now: datetime, *, limit: int, beside: AbstractSet[str] = frozenset()
    ) -> list[Prepared]:
        """Up to `limit` messages to call now, `beside` those in hand. This also reschedules messages to try later, ends
        those that cannot be sent, and decides about those of a dead worker."""
        while True:
            found = await self._store.singles.find_due(work.credential.id, now=now, limit=limit + len(beside))
            fresh = [Prepared(message, {}, is_stored=True) for message in found if message.id not in beside][:limit]
            notes = await self._write_notes(work, fresh, now)
            later = {note.prepared.message.id for note in notes if note.purpose is Purpose.LATER}
            wanted = [each for each in fresh if each.message.id not in later and work.writer.is_to_be_sent(each)]
            if wanted or not notes:
                break
        return await self._read_contents(work, wanted, now)

    async def _read_contents(self, work: _Work, wanted: Sequence[Prepared], now: datetime) -> list[Prepared]:
        """The first of these with their contents, as many as are not too large together."""
        ids = [each.message.id for each in wanted]
        found = await self._store.single_contents.find(ids, most_bytes=_BYTES_AHEAD) if ids else {}
        if len(found) < len(ids) and (missing := await self._store.single_contents.find_missing(ids)):
            lost = [each for each in wanted if each.message.id in missing]
            await work.writer.write([Note(each, Purpose.REJECT, at=now, detail=_NO_CONTENT) for each in lost])
        ready = [each for each in wanted if each.message.id in found]
        for each in ready:
            each.content = msgspec.json.decode(found[each.message.id])
        work.turn.handed.update((each.message.id, each) for each in ready)
        return ready

    async def _write_notes(self, work: _Work, fresh: Sequence[Prepared], now: datetime) -> Sequence[Note]:
        """Write the notes that have to be in the ledger before any of these messages is called."""
        barred = await self._find_barred([each.message for each in fresh])
        notes = [note for each in fresh if (note := self._note(work, each, barred, now)) is not None]
        if notes:
            await work.writer.write(notes)
            ended = [note.prepared.message.id for note in notes if note.prepared.message.pending is None]
            if ended:
                await self._store.single_contents.remove(ended)
            for moment in {note.until for note in notes if note.until is not None}:
                await self._flow.wake_at(work.credential.id, moment)
        return notes

    def _note(self, work: _Work, prepared: Prepared, barred: dict[str, Reason], now: datetime) -> Note | None:
        """The note to write about the message before its call, if any."""
        message = prepared.message
        if message.is_sending:
            return self._note_abandoned(work, prepared, now)
        if message.single is None or not message.is_unsent:
            return None
        if message.single.is_over(now):
            return Note(prepared, Purpose.REJECT, at=now, reason=Reason.EXPIRED)
        if message.app_id not in work.credential.usable_by:
            return Note(prepared, Purpose.REJECT, at=now, detail=_NOT_SHARED)
        if (reason := barred.get(message.id)) is not None:
            return Note(prepared, Purpose.REJECT, at=now, reason=reason)
        due = due_at(message, _NO_RETRY, work.credential.retry, now=now)
        return Note(prepared, Purpose.LATER, until=due) if due is not None and due > now else None

    def _note_abandoned(self, work: _Work, prepared: Prepared, now: datetime) -> Note | None:
        message = prepared.message
        if message.owner == work.owner:
            return None
        if message.until is not None and now < message.until:
            return Note(prepared, Purpose.LATER, until=message.until)
        return Note(prepared, Purpose.RECOVER, at=now)

    async def _find_barred(self, found: Sequence[Message]) -> dict[str, Reason]:
        """The reasons why some recipients get nothing, by message id."""
        alike: dict[tuple[str, Channel, str, bool], tuple[SingleWish, list[Message]]] = {}
        for message in found:
            if (wish := message.single) is not None:
                key = message.app_id, wish.channel, wish.list, wish.transactional
                alike.setdefault(key, (wish, []))[1].append(message)
        barred: dict[str, Reason] = {}
        for (app_id, *_), (wish, theirs) in alike.items():
            reasons = await find_barred(self._store, app_id, wish, [one.to for one in theirs])
            barred |= {one.id: reasons[one.to] for one in theirs if one.to in reasons}
        return barred

    def _writer(self, credential: Credential, owner: str, session: WritingSession) -> EntryWriter:
        wanted = credential.on_unknown is OnUnknown.RETRY
        return EntryWriter(
            self._store,
            batch_id=credential.id,
            owner=owner,
            attempts=credential.retry.attempts,
            session=session,
            repeating=Repeating(wanted, self._credentials.repeats_within(credential)),
            of_singles=True,
        )


_PAUSES = Backoff(first_seconds=_FIRST_PAUSE, cap_seconds=_LONGEST_PAUSE)
