"""What is said to a fake and what it tells, as lines of JSON: a process of its own knows nothing of the tests."""

from enum import StrEnum

from msgspec import Struct, field


class Cut(StrEnum):
    """Where a fake breaks a connection off, with a reset."""

    NEVER = ""
    BEGINNING = "beginning"  # at the first bytes of a call
    CALL = "call"  # when it has the whole call
    ANSWER = "answer"  # in the middle of the first line of its answer
    BODY = "body"  # behind the head of its answer


class StreamEnd(StrEnum):
    """How a fake of HTTP/2 ends a call without an answer, and not its connection."""

    NEVER = ""
    RESET = "reset"  # after it has the whole call
    REFUSED = "refused"  # before it has looked at it
    GOODBYE = "goodbye"  # with a GOAWAY that leaves this call out; earlier ones are answered


class Rule(Struct):
    """How a call is answered. `hang` says nothing for ever, `held` nothing before `Do.LET_GO` (the fake of APNs alone);
    `close` says goodbye behind the answer."""

    status: int = 200
    text: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    delay_seconds: float = 0.0
    cut: Cut = Cut.NEVER
    hang: bool = False
    held: bool = False
    close: bool = False
    stream: StreamEnd = StreamEnd.NEVER


class Arrived(Struct):
    """A call as it came. `began_ns` is the instant of its first byte on the machine's monotonic clock, which all its
    processes share; `at` the same by the wall clock, in seconds. `peer` tells connections apart."""

    began_ns: int
    at: float
    peer: int
    path: str
    headers: dict[str, str]
    body: str


class Counts(Struct):
    """What a fake has seen of connections. `bytes` are those of messages, begun or whole; `most` is the most calls that
    were under way at the same time; `ended` are the connections that are over; `others` are the calls that were no
    messages."""

    connections: int = 0
    bytes: int = 0
    calls: int = 0
    most: int = 0
    ended: int = 0
    others: int = 0


class Do(StrEnum):
    """What a fake can be asked to do."""

    ANSWER = "answer"  # by these rules from now on
    TELL = "tell"  # no more than what every reply tells
    FORGET = "forget"  # what has arrived so far
    LET_GO = "let go"  # of all calls that are held


class Order(Struct):
    """What a test asks of a fake: `next` calls are answered so, one after the other, and the rest by `always`."""

    do: Do
    next: list[Rule] = field(default_factory=list)
    always: Rule | None = None


class Told(Struct):
    """What a fake replies to an order."""

    arrived: list[Arrived]
    counts: Counts
