"""Dead letters as the API shows them."""

from msgspec import Struct
from msgspec.structs import asdict

from services.api.clock.callback_body import CallbackBody, callback_view, redact
from services.api.http.wire import Timestamp, hide
from shared.domain.clock.dead_letters import ErrorCount
from shared.domain.clock.outcomes import DeadLetter
from shared.domain.clock.schedules import Schedule
from shared.domain.instants import format_instant


class DeadLetterView(Struct, frozen=True, kw_only=True):
    """An instant that was refused to the last attempt; `id` is its message id."""

    id: str
    namespace: str
    key: str
    due: Timestamp
    died_at: Timestamp
    attempts: int
    error: str
    redacted: bool = False


class WholeDeadLetterView(DeadLetterView, frozen=True, kw_only=True):
    """A dead letter with what a retry would do now: `null` where its schedule is gone, so that it can only be
    discarded."""

    callback: CallbackBody | None


class ErrorCountView(Struct, frozen=True, kw_only=True):
    """How many of the last dead letters had this error, and when the last of these died."""

    error: str
    count: int
    last_died_at: Timestamp


def dead_letter_view(letter: DeadLetter, *, personal: bool = True) -> DeadLetterView:
    """A dead letter as it is shown, without personal data unless `personal`: a target may answer with what it got."""
    return DeadLetterView(
        id=letter.id,
        namespace=letter.namespace,
        key=letter.key,
        due=format_instant(letter.due),
        died_at=format_instant(letter.died_at),
        attempts=letter.attempts,
        error=letter.error if personal else hide(letter.error),
        redacted=not personal,
    )


def whole_view(letter: DeadLetter, schedule: Schedule | None, *, personal: bool) -> WholeDeadLetterView:
    """A dead letter and the callback of its schedule, if that is there."""
    callback = None
    if schedule is not None:
        told = schedule.definition.callback
        callback = callback_view(told if personal else redact(told))
    return WholeDeadLetterView(**asdict(dead_letter_view(letter, personal=personal)), callback=callback)


def error_view(counted: ErrorCount, *, personal: bool) -> ErrorCountView:
    """An error as it is shown, without its text unless `personal`."""
    return ErrorCountView(
        error=counted.error if personal else hide(counted.error),
        count=counted.count,
        last_died_at=format_instant(counted.last_died_at),
    )
