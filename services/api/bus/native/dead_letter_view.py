"""Dead letters of the bus as the API shows them."""

from msgspec import Raw, Struct
from msgspec.structs import asdict

from services.api.bus.native.attempt_view import BusAttemptView, attempt_view
from services.api.http.wire import Timestamp
from shared.domain.bus.dead_letters import BusDeadLetter, DeathReason
from shared.domain.instants import format_instant, format_maybe


class BusDeadLetterView(Struct, frozen=True, kw_only=True):
    """Events that nobody has taken; `id` is their delivery's. `reason` is `attempts` where they were refused too often,
    `age` where for too long, `backlog` where too many waited: then there is no delivery, and a retry replays the events
    while the log has them; where it is not known in which log they lie, nothing `can_be_retried`.
    `first_at` is when the first of them arrived, `last_at` when the last did, where that is told. The first three and
    the last three of the `made` attempts are shown."""

    id: str
    namespace: str
    key: str
    reason: DeathReason
    died_at: Timestamp
    count: int
    bytes: int
    first_at: Timestamp
    last_at: Timestamp | None
    made: int
    attempts: list[BusAttemptView]
    can_be_retried: bool
    redacted: bool = False


class WholeBusDeadLetterView(BusDeadLetterView, frozen=True, kw_only=True):
    """A dead letter with its events, as their receiver would have got them: none for whoever may not see personal
    data."""

    events: list[Raw]


def bus_letter_view(letter: BusDeadLetter, *, personal: bool) -> BusDeadLetterView:
    """A dead letter as it is shown, without personal data unless `personal`: a receiver may answer with what it got."""
    return BusDeadLetterView(
        id=letter.id,
        namespace=letter.namespace,
        key=letter.key,
        reason=letter.reason,
        died_at=format_instant(letter.died_at),
        count=letter.count,
        bytes=letter.size,
        first_at=format_instant(letter.first_at),
        last_at=format_maybe(letter.last_at),
        made=letter.made,
        attempts=[attempt_view(each, personal=personal) for each in letter.attempts],
        can_be_retried=letter.can_be_retried,
        redacted=not personal,
    )


def whole_bus_letter_view(letter: BusDeadLetter, *, personal: bool) -> WholeBusDeadLetterView:
    """A dead letter and its events."""
    events = [Raw(event) for event in letter.events] if personal else []
    return WholeBusDeadLetterView(**asdict(bus_letter_view(letter, personal=personal)), events=events)
