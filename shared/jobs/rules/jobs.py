"""Jobs: their life and their plan, the tasks of that life, and the owners of its occurrences.

    scheduled ───> running ───> completed
    scheduled <──> paused  <──> running
        running <──> circuitbreak     (stopped can follow everything but completed)

A scheduled job can be paused and resumed: it is scheduled again before its start, and runs after it. `TRANSITIONS`
has the same as data. It makes the filter of every compare-and-set, and only this package compares statuses.

    job/<key of the job>/<stage>        an occurrence of a stage
    batch/<key of the job>/<ordinal>    an occurrence of a batch that is tried again
"""

from datetime import datetime
from enum import Enum, StrEnum
from typing import Any, ClassVar, assert_never

from msgspec import Struct
from msgspec.structs import replace

from shared.audience.rules.audiences import Source, table_name
from shared.core.documents import sources
from shared.core.errors import Invalid
from shared.core.ids import Idempotency
from shared.core.instants import from_ms
from shared.core.tasks import RetriedTask
from shared.jobs.rules.batches import Totals
from shared.jobs.rules.events import DueMail, Event
from shared.jobs.rules.templates import Template


class JobStatus(StrEnum):
    """The state of a job."""

    SCHEDULED = "scheduled"  # accepted, its start is in the future
    RUNNING = "running"  # planned, fed and sent
    PAUSED = "paused"  # held by a user: nothing is fed
    TRIPPED = "circuitbreak"  # held because too many batches failed
    STOPPED = "stopped"  # ended by a user or by a permanent fault; final
    COMPLETED = "completed"  # planned to the end, every batch settled; final


TRANSITIONS: dict[JobStatus, frozenset[JobStatus]] = {
    JobStatus.SCHEDULED: frozenset({JobStatus.RUNNING, JobStatus.PAUSED, JobStatus.STOPPED}),
    JobStatus.RUNNING: frozenset({JobStatus.PAUSED, JobStatus.TRIPPED, JobStatus.STOPPED, JobStatus.COMPLETED}),
    JobStatus.PAUSED: frozenset({JobStatus.SCHEDULED, JobStatus.RUNNING, JobStatus.STOPPED}),
    JobStatus.TRIPPED: frozenset({JobStatus.RUNNING, JobStatus.STOPPED}),
    JobStatus.STOPPED: frozenset(),
    JobStatus.COMPLETED: frozenset(),
}
STARTABLE = frozenset({JobStatus.SCHEDULED})
PAUSABLE = frozenset({JobStatus.SCHEDULED, JobStatus.RUNNING})
RESUMABLE = frozenset({JobStatus.PAUSED, JobStatus.TRIPPED})
STOPPABLE = sources(TRANSITIONS, JobStatus.STOPPED)
NAME_CHARACTERS = 200


def check_job_name(name: str) -> None:
    if name and (len(name) > NAME_CHARACTERS or not name.isprintable() or not name.strip()):
        rule = f"it must be 1 to {NAME_CHARACTERS} printable characters, or be left out for the template's name"
        raise Invalid(f"invalid name: {rule}", field="name", value=name)


class Plan(Struct, frozen=True):
    """The progress of the plan.

    `source` is the source of the audience, fixed before the first cut; `end` the number of batches, once the audience
    is cut completely; `templates` the copies that the job renders with. `unknown` counts a file's users without a
    device if planning finds them; otherwise sending does.
    """

    source: Source | None = None
    end: int | None = None
    templates: tuple[Template, ...] = ()
    unknown: int = 0


def with_plan(job: "Job", summed: Totals) -> Totals:
    """The sums over a job's batches plus the counts of its plan."""
    return replace(summed, unknown=summed.unknown + job.plan.unknown)


class Job(Struct, frozen=True, kw_only=True):
    """Messages to one audience of one app; `service` is the kind of the job. Times are nanoseconds since the epoch, 0
    if unset.

    The audience is everybody, those that `filters` keep, or the users in the file at `csv_path` ("<bucket>/<key>");
    each job of a localized group has those of one `zone`, by the group's `offsets`, `wall_clock` and `next_day`.
    `control_group` is the share of users who get nothing.

    `name` is the caller's, `""` for none. Only its kind knows the fields in `options`. A kind that sends by provider
    accounts names one: `credential_id`. Its table is that of the service, or of `table_kind` if that is set. `round`
    counts how often the job was reopened; while it is `reopening`, its batches return to its plan.

    `open` stays true until nothing is left to do: finished, or stopped with every batch settled. `totals`, `reasons`
    and `locales` are written when the job closes; before, they are summed from the batches. `forgiven` batches had
    failed at the last resumption. `mails` are due. `changed_at` is the database's time of the last move or page of
    planning. `trace` is that of the request (`shared.runtime.tracing`).

    `schedule` is the id of the schedule that started it.

    A caller may choose the `id`, and may use it again after its app was deleted. `incarnation` is random and
    distinguishes such jobs: everything derived from a job (batches, tasks, occurrences, markers, message ids) is named
    by its `key`.
    """

    id: str
    incarnation: str = ""
    app_id: str
    app_name: str
    service: str
    template_names: tuple[str, ...]
    created_by: str
    group_id: str
    status: JobStatus = JobStatus.RUNNING
    open: bool = True
    filters: dict[str, str] = {}
    name: str = ""
    context: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    past_time_strategy: str = ""
    csv_path: str = ""
    control_group: float = 0.0
    control_group_csv_path: str = ""
    localized: bool = False
    zone: str = ""
    offsets: tuple[str, ...] = ()
    wall_clock: int = 0
    next_day: tuple[str, ...] = ()
    counts_unknown: bool = True
    expires_at: int = 0
    starts_at: int = 0
    created_at: int = 0
    updated_at: int = 0
    completed_at: int = 0
    idempotency: Idempotency | None = None
    plan: Plan = Plan()
    totals: Totals | None = None
    reasons: dict[str, int] = {}
    locales: dict[str, int] = {}
    feedbacks: dict[str, int] = {}
    failure: str = ""
    forgiven: int = 0
    events: tuple[Event, ...] = ()
    mails: tuple[DueMail, ...] = ()
    changed_at: datetime | None = None
    trace: str = ""
    credential_id: str = ""
    table_kind: str = ""
    options: dict[str, Any] = {}
    round: int = 0
    reopening: bool = False
    schedule: str = ""

    @property
    def key(self) -> str:
        return job_key(self.id, self.incarnation)

    @property
    def title(self) -> str:
        return self.name or ",".join(self.template_names)

    @property
    def kind(self) -> str:
        """`push`, `mail` or `sms`; for an account with other recipients its kind, such as `http`."""
        channel = str(self.options.get("channel", "push"))
        return self.table_kind if channel == "other" else channel

    @property
    def starts(self) -> datetime:
        """The start as an instant: `starts_at` rounded up, so that nothing starts early."""
        return from_ms(-(-self.starts_at // 1_000_000))

    @property
    def table(self) -> str:
        return table_name(self.app_name, self.table_kind or self.service)

    @property
    def file_plan_id(self) -> str:
        """The key of its file's cuts: all zones of a localized job share them."""
        return job_key(self.group_id if self.zone else self.id, self.incarnation)

    @property
    def divided(self) -> bool:
        """Whether its audience is its zone's part of a division."""
        return bool(self.zone and self.offsets)

    @property
    def counts_only(self) -> bool:
        """Whether it is a dry run of a kind that then calls no provider."""
        return self.options.get("dry_run") is True

    @property
    def unplanned(self) -> bool:
        return self.plan.source is None

    @property
    def waits(self) -> bool:
        """Whether it has not begun: its start is in the future, or passed while it was paused."""
        return self.starts_at != 0 and self.unplanned and self.status in {JobStatus.SCHEDULED, JobStatus.PAUSED}

    @property
    def ended(self) -> bool:
        return not self.open or self.status is JobStatus.STOPPED

    @property
    def standing(self) -> "Standing":
        return Standing(self.status, self.plan.end, self.expires_at, self.service, self.credential_id, self.reopening)


def job_key(job_id: str, incarnation: str) -> str:
    return f"{job_id}.{incarnation}" if incarnation else job_id


def split_key(key: str) -> tuple[str, str]:
    """The id and the incarnation in a job's key; the incarnation of a bare id is ""."""
    job_id, _, incarnation = key.partition(".")
    return job_id, incarnation


class Standing(Struct, frozen=True):
    """The fields of a job that decide about its batches: its status, the number of batches once known, its service and
    account, and whether it is being reopened."""

    status: JobStatus
    end: int | None
    expires_at: int
    service: str = ""
    credential_id: str = ""
    reopening: bool = False

    def is_at(self, status: JobStatus) -> bool:
        return self.status is status

    @property
    def feeds(self) -> bool:
        return self.status is JobStatus.RUNNING

    @property
    def held(self) -> bool:
        return self.status in RESUMABLE

    def feeds_batch(self, ordinal: int) -> bool:
        return self.feeds and (self.end is None or ordinal < self.end)

    @property
    def stopped(self) -> bool:
        return self.status is JobStatus.STOPPED

    @property
    def may_finish(self) -> bool:
        """Whether the job closes as soon as all its batches are settled."""
        match self.status:
            case JobStatus.RUNNING:
                return self.end is not None and not self.reopening
            case JobStatus.STOPPED:
                return True
            case JobStatus.SCHEDULED | JobStatus.PAUSED | JobStatus.TRIPPED | JobStatus.COMPLETED:
                return False
            case _:
                assert_never(self.status)


class Gate(Enum):
    OPEN = "open"  # send it
    PARK = "park"  # back to planned: the job is held
    DROP = "drop"  # never: the job has ended, or the batch is too late


def gate(standing: Standing, now_ns: int) -> Gate:
    if standing.expires_at and standing.expires_at <= now_ns:
        return Gate.DROP
    match standing.status:
        case JobStatus.RUNNING:
            return Gate.OPEN
        case JobStatus.SCHEDULED | JobStatus.PAUSED | JobStatus.TRIPPED:
            return Gate.PARK
        case JobStatus.STOPPED | JobStatus.COMPLETED:
            return Gate.DROP
        case _:
            assert_never(standing.status)


JOB = "job"
BATCH = "batch"


class JobStage(StrEnum):
    START = "start"  # a `startsAt`
    PLAN = "plan"  # planning that is tried again
    FINISH = "finish"  # closing that is tried again
    MAIL = "mail"  # mails that are tried again


def job_owner(job_key: str, stage: JobStage) -> str:
    return f"{JOB}/{job_key}/{stage}"


def batch_owner(job_key: str, ordinal: int) -> str:
    return f"{BATCH}/{job_key}/{ordinal}"


def read_job_owner(owner: str) -> tuple[str, JobStage]:
    job_key, stage = _parts(owner, JOB)
    return job_key, JobStage(stage)


def read_batch_owner(owner: str) -> tuple[str, int]:
    job_key, ordinal = _parts(owner, BATCH)
    return job_key, int(ordinal)


def _parts(owner: str, kind: str) -> tuple[str, str]:
    found, _, rest = owner.partition("/")
    thing, _, detail = rest.partition("/")
    if found != kind:
        raise ValueError(f"not the owner of a {kind}: {owner!r}")
    return thing, detail


SPLIT_QUEUE = "push.split"
BATCH_QUEUE = "push.batch"
FINISH_QUEUE = "push.finish"
MAIL_QUEUE = "push.mail"


class PlanJob(RetriedTask, frozen=True, tag="plan"):
    """Cut the job's audience into batches, from the present state of the plan."""

    queue: ClassVar[str] = SPLIT_QUEUE
    job_id: str


class SendBatch(RetriedTask, frozen=True, tag="send"):
    """Complete one batch, if it still has this turn."""

    queue: ClassVar[str] = BATCH_QUEUE
    job_id: str
    ordinal: int
    turn: int


class FinishJob(RetriedTask, frozen=True, tag="finish"):
    """Sum up and close a job whose batches are all settled."""

    queue: ClassVar[str] = FINISH_QUEUE
    job_id: str


class SendMail(RetriedTask, frozen=True, tag="mail"):
    """Send the mail of this kind about the move of the job at this time (ns), if it is still due."""

    queue: ClassVar[str] = MAIL_QUEUE
    job_id: str
    kind: str
    at: int


JobTask = PlanJob | SendBatch | FinishJob | SendMail
