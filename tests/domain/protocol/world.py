"""The state of the model: everything that outlives a process, and where each process stands.

All of it is immutable and hashable, so that an exploration can keep, compare and go back to any state.
"""

from enum import StrEnum
from typing import Literal, NamedTuple

from shared.domain.jobs.batches import SETTLED, BatchStatus
from shared.domain.jobs.jobs import JobStatus

IN_FLIGHT = frozenset({BatchStatus.QUEUED, BatchStatus.SENDING})


class Flaw(StrEnum):
    """One way each of breaking the protocol on purpose. The explorer has to find a counterexample for every one."""

    NO_FENCE = "the marker is read without fencing the owner"
    MARKER_BEFORE_FENCE = "the marker is read, and then the owner is fenced"
    ERROR_IS_NO_MARKER = "a failed read of the marker counts as no marker"
    MARKER_OUTSIDE = "the marker is committed in a transaction of its own, after the records"
    BLIND_CLEAR = "recovery clears whatever owner there is"
    BLIND_RELEASE = "an aborted batch is put back whoever owns it by now"
    BELIEVED_COMMIT = "a commit without a reply counts as done"
    BELIEVED_ABORT = "a commit without a reply counts as rolled back"
    BELIEVED_TAKE = "a take without a reply counts as won"
    REUSED_LANE = "a lane that was lost is started again under its id"
    LATE_START = "a lane is started after its id was written to the batch"
    GREEDY_FEED = "a chain is fed its lowest planned batch, though an earlier one is unsettled"
    SCAN_BY_STATUS = "the lowest unsettled batch is looked for status by status, not in one look or by ordinal"
    SUCCESSOR_OF_PARKED = "who puts a batch back to planned goes on with its successor"
    IGNORED_TURN = "messages of another turn are worked on"
    REQUEUED_LOSERS = "who loses a batch or a lane puts its message back"
    DROPPED_OWNED = "stop drops a batch that a lane owns"
    OPEN_END = "a job is completed as soon as all batches that are there are settled"
    STUBBORN_PLANNER = "an overtaken planner goes on with the rest of its page"
    UNENDED_STOP = "a stopped job is closed without ending its plan"
    NO_UPKEEP = "nobody looks for lost work"
    ANY_PART = "recovery takes the marker of an earlier part for that of the last take"
    ANY_TAKE = "a move of an owned batch matches its lane, and not the take"
    STALE_PART = "a take does not see that another one was there since its part was read"


class Promise(StrEnum):
    """What can be broken, in the words of a failed test."""

    TWICE = "a batch is out twice"
    UNTRUE = "a status is not what is out"
    BACKWARDS = "a marker goes backwards"
    CROWDED = "a chain has two batches in flight"
    ILLEGAL = "a move that the table does not have"
    TORN = "the plan is torn"
    TOTALS = "a job is closed too early"
    NEVER = "not settled in the end"
    CHURN = "taken more often than it was delivered"
    FENCED = "a healthy lane is fenced"


class Violation(Exception):
    """A promise is broken: which, and how."""

    def __init__(self, promise: Promise, detail: str) -> None:
        super().__init__(f"{promise}: {detail}")
        self.promise = promise


class Rules(NamedTuple):
    """The protocol's constants.

    `attempts`: takes after which a batch fails; 0 means never. `self_recovery`: a worker that lost its lane recovers
    the batch itself if it still owns it. `patient`: upkeep spares owned batches, as its ages have it do while nothing
    fails; nobody may be fenced then. `takes`: how often a batch may be taken; 0 means no limit. `parts`: in how many
    transactions a batch goes out.
    """

    slots: int = 1
    attempts: int = 0
    self_recovery: bool = False
    patient: bool = False
    takes: int = 0
    parts: int = 1
    flaw: Flaw | None = None


class Entry(NamedTuple):
    """One entry of the plan: a batch of the devices `after` + 1 to `upto`, or the plan's end (status None). So many of
    its `parts` are known to be out."""

    after: int
    upto: int
    status: BatchStatus | None = BatchStatus.PLANNED
    turn: int = 0
    attempts: int = 0
    owner: str = ""
    receipt: str = ""
    parts: int = 0

    @property
    def settled(self) -> bool:
        """Whether its status is final."""
        return self.status in SETTLED


class Job(NamedTuple):
    """`open` until nothing is left to do."""

    status: JobStatus = JobStatus.RUNNING
    open: bool = True


class Message(NamedTuple):
    """A task on the broker."""

    queue: Literal["plan", "send"]
    ordinal: int = 0
    turn: int = 0


class Piece(NamedTuple):
    """What a transaction holds: the records of a part, its marker, or both. The receipt tells attempts apart."""

    ordinal: int
    receipt: str
    part: int = 0
    records: bool = True
    marker: bool = True


class Lane(NamedTuple):
    """A transactional id as Kafka knows it.

    `asked` is a commit on its way to Kafka that nobody waits for any more. `hidden` are markers of a commit that is
    decided but that a reader without a fence does not see yet.
    """

    id: str
    epoch: int = 0
    content: tuple[Piece, ...] = ()
    asked: bool = False
    hidden: tuple[Piece, ...] = ()


class Actor(NamedTuple):
    """A process, or one hand of it: where it stands in its program, the message in its hands, its lane.

    `cut` says that the broker has taken the message back already; an acknowledgement does nothing then.
    """

    kind: Literal["worker", "planner", "upkeep", "user"]
    state: int = 0
    held: Message | None = None
    cut: bool = False
    lane: str = ""
    epoch: int = 0


class Faults(NamedTuple):
    """How often each fault may still strike, and how often upkeep and the user may still act; -1 is without limit."""

    crash: int = 0  # a process dies: its message goes back, its lane is lost
    cut: int = 0  # the broker takes back the message of a process that lives on (a stopped one, a lost connection)
    purge: int = 0  # the broker loses a message
    double: int = 0  # the broker holds a message twice
    silent: int = 0  # a reply is lost: what was asked happened, did not, or happens later
    lag: int = 0  # a commit's marker shows late
    expire: int = 0  # Kafka ends a transaction that took too long
    refuse: int = 0  # Kafka refuses a record
    chores: int = 0  # upkeep does something
    clicks: int = 0  # a user pauses, resumes or stops


class World(NamedTuple):
    """All there is.

    `topic` lists the committed parts and `markers` the last marker of each slot, as (ordinal, part, receipt). `late`
    are the writes that reach MongoDB after their sender gave up on them.
    """

    job: Job
    entries: tuple[Entry, ...]
    messages: tuple[Message, ...]
    actors: tuple[Actor, ...]
    markers: tuple[tuple[int, int, str] | None, ...]
    devices: int
    faults: Faults = Faults()
    lanes: tuple[Lane, ...] = ()
    topic: tuple[tuple[int, int, str], ...] = ()
    late: tuple["Write", ...] = ()

    @property
    def ended(self) -> bool:
        """Whether the plan has its end."""
        return bool(self.entries) and self.entries[-1].status is None

    @property
    def batches(self) -> tuple[Entry, ...]:
        """The plan without its end."""
        return self.entries[:-1] if self.ended else self.entries

    @property
    def all_settled(self) -> bool:
        """Whether every batch that is there is settled."""
        return all(batch.settled for batch in self.batches)

    def lane(self, id: str) -> Lane:
        """What Kafka knows of the id; an unknown one has epoch 0 and nothing open."""
        return next((lane for lane in self.lanes if lane.id == id), Lane(id))

    def lowest(self, slot: int, slots: int, statuses: frozenset[BatchStatus | None]) -> int | None:
        """The first batch of the chain that has one of the statuses."""
        chain = range(slot, len(self.batches), slots)
        return next((ordinal for ordinal in chain if self.batches[ordinal].status in statuses), None)


class Move(NamedTuple):
    """A compare-and-set on a batch; the reply is the new batch or None.

    It applies to a batch in one of `sources`, of this `turn`, `owner` and number of `attempts` where they are given.
    `take` is the new owner; `clear` removes the owner; `raises` makes it the next turn; so many `parts` are out then.
    """

    ordinal: int
    sources: tuple[BatchStatus, ...]
    target: BatchStatus
    turn: int | None = None
    owner: str | None = None
    take: str = ""
    clear: bool = False
    raises: bool = False
    receipt: str = ""
    parts: int | None = None
    attempts: int | None = None

    def matches(self, batch: Entry) -> bool:
        """Whether the compare-and-set finds what it wants."""
        wanted = (self.turn, batch.turn), (self.owner, batch.owner), (self.attempts, batch.attempts)
        return batch.status in self.sources and all(want in (None, have) for want, have in wanted)

    def after(self, batch: Entry) -> Entry:
        """The batch as the move leaves it."""
        return batch._replace(
            status=self.target,
            turn=batch.turn + self.raises,
            attempts=batch.attempts + bool(self.take),
            owner="" if self.clear else self.take or batch.owner,
            receipt=self.receipt or batch.receipt,
            parts=batch.parts if self.parts is None else self.parts,
        )

    def landed(self, batch: Entry) -> bool:
        """Whether a batch that is read again looks as if this move had been made: my token there means that I won."""
        return (
            batch.status is self.target
            and (not self.take or batch.owner == self.take)
            and (not self.receipt or batch.receipt == self.receipt)
            and (not self.raises or self.turn is None or batch.turn == self.turn + 1)
            and self.parts in (None, batch.parts)
        )


class Insert(NamedTuple):
    """Insert-only, by ordinal; the reply says whether the ordinal was free."""

    ordinal: int
    entry: Entry


class MoveJob(NamedTuple):
    """A compare-and-set on the job; the reply says whether it moved. `close` ends its life as well."""

    sources: tuple[JobStatus, ...]
    target: JobStatus
    close: bool = False


Write = Move | Insert | MoveJob
