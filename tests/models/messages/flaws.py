"""What is changed in mutants: one function in the place of another."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from services.worker.messages.dispatch import Dispatch
from services.worker.messages.entries import EntryWriter, Note, Prepared, Purpose
from services.worker.messages.in_hand import BatchesInHand
from shared.core.errors import Unavailable
from shared.jobs.upkeep import Found, Upkeep
from shared.messages.clock import AccountClock
from shared.messages.rules import ledger
from shared.messages.rules.ledger import Message, MessageState, News
from shared.messages.rules.pacing import Block, Columns, Pace
from shared.messages.rules.places import Places
from shared.messages.store_credentials import Credentials
from shared.messages.store_jobs import MessageJobs, RunningJob
from shared.messages.store_ledger import EntryChange, MessageLedger, WriteResult, WritingSession
from shared.runtime.loops import pause

_Method = Callable[..., Any]

_write = MessageLedger.write
_change = MessageLedger._change
_change_traffic = Credentials.change_traffic
_find_running = MessageJobs.find_running
_look = AccountClock.look
_ledger_recover = ledger.recover
_take_columns = Block.take


async def write_for_anybody(
    self: MessageLedger,
    batch_id: str,
    owner: Any,
    changes: Sequence[EntryChange],
    session: WritingSession | None = None,
    **of: Any,
) -> WriteResult:
    return await _write(self, batch_id, {"$exists": True}, changes, session, **of)  # type: ignore[arg-type]


async def change_whatever_is_there(
    self: MessageLedger, changes: Sequence[EntryChange], events: Any, session: Any
) -> None:
    found = await self.with_ids([change.before.id for change in changes if change.before is not None])
    as_it_is = [
        EntryChange(change.before and replace(change.before, v=found[change.before.id].v), change.after)
        for change in changes
    ]
    await _change(self, as_it_is, events, session)


_write_notes = EntryWriter.write


async def believe_write_ahead(
    self: EntryWriter, notes: Sequence[Note], *, patience_seconds: float | None = None
) -> None:
    """A write ahead without a reply counts as done."""
    changes = self._changes(notes)
    try:
        result = await self._store.messages.write(
            self._batch_id, self._owner, [each for _, each in changes], self._session
        )
    except Unavailable:
        result = WriteResult.DONE if all(note.purpose is Purpose.AHEAD for note in notes) else WriteResult.STALE
    if result is not WriteResult.DONE:
        await _write_notes(self, notes, patience_seconds=patience_seconds)
        return
    for prepared, change in changes:
        prepared.message, prepared.is_stored = change.after, True


def recover_at_once(message: Message, *, owner: str, now: datetime, repeats: bool) -> Message | None:
    return _ledger_recover(replace(message, until=None), owner=owner, now=now, repeats=repeats)


def repeat_always(message: Message, *, owner: str, now: datetime, repeats: bool) -> Message | None:
    return _ledger_recover(message, owner=owner, now=now, repeats=True)


async def look_without_generations(self: AccountClock) -> None:
    before = self.generation
    await _look(self)
    self.generation = min(before or 1, self.generation)


async def sleep_in_one_go(self: Dispatch, instant_us: int, _: int) -> None:
    if (seconds := (instant_us - self._clock.now_us()) / 1_000_000) > 0:
        await pause(self._stopping, seconds)


def be_in_time_always(self: Dispatch, *_: Any) -> bool:
    return self._end is None


def cover_for_ever(self: Dispatch, prepared: Prepared) -> int:
    return 1 << 62


async def change_traffic_blindly(self: Credentials, credential_id: str, seq: int, pace: Pace, places: Places) -> bool:
    now = await self.get_traffic(credential_id)
    if now is None:
        return False
    return await _change_traffic(self, credential_id, now.pace.seq, replace(pace, seq=now.pace.seq + 1), places)


def deal_out_again(self: Block, wanted: int, count: int, *, from_us: int) -> tuple[Block, Columns] | None:
    return _take_columns(replace(self, taken=0), wanted, count, from_us=from_us)


def send_in_any_round(message: Message | None, *, round: int, states: frozenset[MessageState]) -> bool:  # noqa: A002
    if message is None:
        return not round or MessageState.UNSENT in states
    return message.state is MessageState.UNSENT or message.state in states


def send_whatever_is_not_sent(message: Message | None, *, round: int, states: frozenset[MessageState]) -> bool:  # noqa: A002
    return message is None or message.state in {MessageState.UNSENT, MessageState.FAILED, MessageState.UNKNOWN}


def hear_anything(message: Message, news: News) -> Message | None:
    return replace(message, v=message.v + 1, state=news.state, reason=news.reason, owner="")


def go_on(self: BatchesInHand, standing: Any) -> bool:
    return True


async def look_for_nothing(self: Upkeep) -> Found:
    return Found()


async def feed_the_youngest(self: MessageJobs, credential_id: str, *, since: int = 0, limit: int) -> list[RunningJob]:
    found = await _find_running(self, credential_id, since=abs(since), limit=limit)
    return [replace(job, created_at=-job.created_at) for job in found]


def count_nothing(before: Message | None, after: Message) -> dict[str, int]:
    return {}
