"""The look at the batches in hand goes on, whatever happens to one of them."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from services.worker.messages.dispatch import DispatchEnd
from services.worker.messages.in_hand import BatchesInHand, BatchInHand, falls_silent
from shared.audience.rules.audiences import KeyRange
from shared.core.errors import Unavailable
from shared.jobs.rules.batches import Batch, BatchStatus
from tests.clocks import ManualClock
from tests.waiting import until

pytestmark = pytest.mark.sending


class Ledger:
    """The session of the batch has ended meanwhile."""

    def __init__(self) -> None:
        self.writes = 0

    async def write(self, *_: Any) -> None:
        self.writes += 1
        raise RuntimeError("Cannot use ended session")


class Session:
    wrote_at = 0.0


class Signs:
    """Something happens while the first sign is written."""

    def __init__(self, at_first: Callable[[], None]) -> None:
        self.sessions: list[Any] = []
        self._at_first = at_first

    async def write(self, batch_id: str, owner: str, changes: Any, session: Any) -> None:
        self.sessions.append(session)
        self._at_first()


class Jobs:
    async def get_standings(self, _: Any) -> dict[str, Any]:
        return {}


class Bounces:
    async def look(self, _: str) -> None:
        raise RuntimeError("a snapshot was refused")


class Sending:
    def __init__(self) -> None:
        self.stops = 0

    def stop(self, _: DispatchEnd) -> None:
        self.stops += 1


async def test_no_sign_is_written_in_a_session_that_has_ended() -> None:
    """The batch has come back to this process meanwhile, with another session."""
    ended, fresh = Session(), Session()
    ledger = Signs(at_first=lambda: in_hand._held.update({batch.id: again}))
    store: Any = type("Store", (), {"messages": ledger, "message_jobs": Jobs()})()
    batch = Batch(job_id="j.a", ordinal=0, range=KeyRange(0, 9), size=9, status=BatchStatus.SENDING)
    other = Batch(job_id="j.a", ordinal=1, range=KeyRange(0, 9), size=9, status=BatchStatus.SENDING)
    in_hand = BatchesInHand(store, Bounces(), ManualClock(), most=5)  # type: ignore[arg-type]
    again = BatchInHand(batch, fresh, 0.0)  # type: ignore[arg-type]
    with in_hand.hold(other, Session()), in_hand.hold(batch, ended):  # type: ignore[arg-type]
        await in_hand._show_signs()
    assert len(ledger.sessions) == 1, "that of the other batch"
    assert ended not in ledger.sessions


@pytest.mark.parametrize(("quiet", "lives", "expected"), [(9, False, True), (0, False, True), (0, True, False)])
async def test_an_owner_is_silent_once_it_gives_no_sign_for_some_time(
    monkeypatch: pytest.MonkeyPatch, quiet: float, lives: bool, expected: bool
) -> None:
    monkeypatch.setattr("services.worker.messages.in_hand._SILENT_SECONDS", 0.05)
    at = datetime(2026, 12, 24, tzinfo=UTC)
    later = at + timedelta(seconds=1)
    batch = Batch(
        job_id="j.a", ordinal=0, range=KeyRange(0, 9), size=9, status=BatchStatus.SENDING, owner="w/1", changed_at=at
    )
    moments = iter([at + timedelta(seconds=quiet), later])

    class Known:
        async def get(self, *_: Any) -> Batch:
            return replace(batch, changed_at=later) if lives else batch

    class Knowing:
        batches = Known()

        async def now(self) -> datetime:
            return next(moments)

    store: Any = Knowing()
    assert await falls_silent(store, batch) is expected


async def test_signs_are_written_side_by_side_and_none_for_want_of_another() -> None:
    """Of hundreds, each might take as long as a majority across zones needs."""
    held = [
        Batch(job_id="j.a", ordinal=number, range=KeyRange(0, 9), size=9, status=BatchStatus.SENDING)
        for number in range(40)
    ]
    under_way, most, written = 0, 0, set[str]()

    class Slow:
        async def write(self, batch_id: str, *_: Any) -> None:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0)
            under_way -= 1
            if batch_id == held[3].id:
                raise Unavailable("it has too much to do")
            written.add(batch_id)

    store: Any = type("Store", (), {"messages": Slow(), "message_jobs": Jobs()})()
    in_hand = BatchesInHand(store, Bounces(), ManualClock(), most=50)  # type: ignore[arg-type]
    with ExitStack() as stack:
        for batch in held:
            stack.enter_context(in_hand.hold(batch, Session()))  # type: ignore[arg-type]
        with pytest.raises(Unavailable):
            await in_hand._show_signs()
    assert written == {batch.id for batch in held} - {held[3].id}
    assert most == 16


async def test_a_sign_that_cannot_be_written_ends_no_look() -> None:
    ledger, sending = Ledger(), Sending()
    store: Any = type("Store", (), {"messages": ledger, "message_jobs": Jobs()})()
    session: Any = type("Session", (), {"wrote_at": 0.0})()
    bounces, dispatch = Bounces(), sending
    batch = Batch(job_id="j.a", ordinal=0, range=KeyRange(0, 9), size=9, status=BatchStatus.SENDING)
    in_hand = BatchesInHand(store, bounces, ManualClock(), most=5)  # type: ignore[arg-type]

    async def goes_on() -> bool:
        return ledger.writes > 2 and sending.stops > 2

    with in_hand.hold(batch, session) as held:
        held.dispatch = dispatch  # type: ignore[assignment]
        await until(goes_on)
