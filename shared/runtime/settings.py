"""The choices of an operator: inert values in sections, each with a default, a unit in its name and a sentence.

The sentences are the manual: `carillon config` prints them (`shared.runtime.configuration.describe`), and the same
module reads them back from a file and from the environment. Nothing here opens, connects or computes.
"""

import re
from typing import Annotated, Any, Literal

from msgspec import Meta

from shared.runtime.bus_settings import BusSettings
from shared.runtime.server_settings import (
    AudienceSettings,
    BlobSettings,
    BrokerSettings,
    Count,
    HostName,
    MailSettings,
    Name,
    Origin,
    Port,
    ProviderSettings,
    PublicUrl,
    Seconds,
    Section,
    StoreSettings,
    StreamSettings,
    TlsSettings,
    TracingSettings,
    check_key_file,
    check_networks,
    rarely,
    says,
)

_TICKS_OF_A_LEASE = 5
_LOOKAHEAD_TICKS = 2
# For a group that is being fired: the answers of its targets, and its queries.
_FIRING_SECONDS = 12.0
_ANSWER_SHARE = 0.75


class ApiSettings(Section, frozen=True):
    """The HTTP API."""

    host: Annotated[str, says("The address to listen on.")] = "127.0.0.1"
    port: Annotated[Port, says("The port to listen on; 0 takes a free one.")] = 8080
    certificate_file: Annotated[
        str, rarely("The certificate (PEM, chain included) by which it speaks HTTPS; empty: plain HTTP.")
    ] = ""
    key_file: Annotated[str, rarely("Private key (PEM). Empty: the key is in certificate_file.")] = ""
    trusted_proxies: Annotated[tuple[str, ...], says("Networks (CIDR) whose x-forwarded-email header is believed.")] = (
        "127.0.0.0/8",
        "::1/128",
    )
    proxy_secret: Annotated[
        str,
        Meta(pattern=r"^([\x21-\x7e]{16,255})?\Z"),
        says(
            "The proxy's secret, in the header x-carillon-proxy-secret: then x-forwarded-email is believed only "
            "beside it; empty: the proxy's address is enough."
        ),
    ] = ""
    public_url: Annotated[
        PublicUrl,
        says(
            "The API's address for callers, with its path: links are made of it, and its origin is ours; empty: as a "
            "request's Host says."
        ),
    ] = ""
    allowed_hosts: Annotated[
        tuple[HostName, ...],
        says(
            "Names in a request's Host that are answered, without ports; empty: localhost, 127.0.0.1 and [::1] while "
            "listening on loopback, and any name elsewhere. That of public_url always is."
        ),
    ] = ()
    allowed_origins: Annotated[
        tuple[Origin, ...],
        says("Origins, as in https://tools.example.com, whose pages may change something here, beside our own."),
    ] = ()
    first_admin: Annotated[str, says("The e-mail address of a user who is an admin from the start.")] = ""
    max_body_bytes: Annotated[int, Meta(ge=1_024, le=2**30), rarely("A larger request body is refused.")] = 2**20
    max_bodies_bytes: Annotated[
        int,
        Meta(ge=2**25, le=2**36),
        rarely("Bytes of the bodies of all requests in hand together; a request beyond them is answered 503."),
    ] = 96 * 2**20
    max_connections: Annotated[
        Count,
        rarely("Connections at the same time, at most half of the files that the process may open; see operating.md."),
    ] = 512
    zone_offset: Annotated[
        Literal["subtracted", "added"],
        rarely(
            "How startsAt becomes a zone's start: its offset subtracted, as clocks ask for, or added as Marathon does."
        ),
    ] = "subtracted"
    lenient_jobs: Annotated[
        bool,
        rarely(
            "As Marathon does, ignore unknown fields of jobs and query parameters, send unfilled tags as nothing, and "
            "take any {{tag}}."
        ),
    ] = False
    requests_per_second: Annotated[
        Count,
        says("Requests of a namespace in each process: N processes allow N times as many. Stopping is always free."),
    ] = 500
    pending_schedules: Annotated[
        int, Meta(ge=1, le=10**9), rarely("Unfinished schedules of a namespace, roughly: counted now and then.")
    ] = 1_000_000
    least_every_seconds: Annotated[Count, rarely("The shortest `every` that a new schedule may have, in seconds.")] = 1
    preview_seconds: Annotated[
        Seconds, rarely("How long the preview of a job may count its audience; then it tells what it found so far.")
    ] = 3.0

    def __post_init__(self) -> None:
        check_networks("trusted_proxies", self.trusted_proxies)
        check_key_file(self.certificate_file, self.key_file)


class WorkerSettings(Section, frozen=True):
    """The workers: they plan, send and finish jobs."""

    lanes: Annotated[Count, rarely("Transactional producers of a process, each sending one batch at a time.")] = 4
    sends_in_flight: Annotated[
        Count,
        rarely("Batches that a process reads, renders or sends at the same time: what a pause lets go out."),
    ] = 4
    plans_in_flight: Annotated[Count, rarely("Jobs that a process cuts into batches at the same time.")] = 2
    batch_size: Annotated[int, Meta(ge=1_000, le=10_000), rarely("Recipients of a batch.")] = 10_000
    grace_seconds: Annotated[
        float,
        Meta(ge=0, le=86_400),
        rarely(
            "For how long a push table that is missing, or a file that is denied, is taken for an outage and tried "
            "again; then it is a fault."
        ),
    ] = 600.0
    page_batches: Annotated[Count, rarely("Batches that a planner cuts before it stores and feeds them.")] = 20
    divide_rows: Annotated[
        int,
        Meta(ge=1_000, le=5_000_000),
        rarely("Rows of a push table whose devices a planner divides among time zones in one statement."),
    ] = 500_000
    max_user_failure_in_batch: Annotated[
        float,
        Meta(ge=0, le=1),
        says("The share of a batch's recipients that may fail before the batch counts as failed."),
    ] = 0.05
    max_batch_failure: Annotated[
        float,
        Meta(ge=0, le=1),
        says("The share of a job's batches at which, once so many failed, the job is held (circuit break); 1: never."),
    ] = 0.05
    push_expiry_unit: Annotated[
        Literal["ms", "seconds"],
        says("The unit of push_expiry in a record: ms for Pusher, seconds as Marathon wrote it."),
    ] = "ms"
    gcm_time_to_live: Annotated[
        Literal["remaining", "absolute"],
        says("time_to_live of a GCM record: what remains, or the epoch second of the end as Marathon wrote it."),
    ] = "remaining"


class SchedulerSettings(Section, frozen=True):
    """The scheduler: it fires what is due, finds work that lost its message or its worker, and forgets what is old."""

    upkeep_seconds: Annotated[Seconds, rarely("The time between two searches.")] = 5.0
    stale_seconds: Annotated[
        Seconds, rarely("For how long work must have stood still, while its queue is empty, to be queued again.")
    ] = 60.0
    margin_seconds: Annotated[
        Seconds, rarely("Time after the stream's transaction time-out before a batch is taken from its owner.")
    ] = 10.0

    tick_seconds: Annotated[Seconds, rarely("The time between two looks for occurrences that come due.")] = 1.0
    early_seconds: Annotated[
        float, Meta(ge=0, le=3_600), rarely("How long before its instant an occurrence may fire; MyCoach's was 60.")
    ] = 0.0
    lease_seconds: Annotated[
        float,
        Meta(ge=2, le=3_600),
        rarely("How long a claim lasts: what a dead scheduler held is claimed again after that; five ticks at least."),
    ] = 30.0
    hold_limit: Annotated[
        int, Meta(ge=100, le=1_000_000), rarely("Occurrences that a process holds in memory until they are due.")
    ] = 20_000
    misfire_after_seconds: Annotated[
        Seconds, rarely("How late an instant must be for the rule `skip` to pass over it; more than any lease.")
    ] = 90.0
    call_lease_seconds: Annotated[
        Seconds, rarely("How long an HTTP callback may wait for a worker before it is handed out again.")
    ] = 60.0
    waiting_calls: Annotated[Count, rarely("HTTP callbacks that may wait for workers; others wait in the store.")] = (
        1_000
    )
    calls_per_namespace: Annotated[
        Count,
        rarely("HTTP callbacks of one namespace that a scheduler has in workers' hands; others wait in the store."),
    ] = 250
    sweep_seconds: Annotated[
        Seconds,
        rarely(
            "The time between two looks for finished schedules, and for single messages, revocations and records of "
            "which a process died."
        ),
    ] = 10.0
    retention_seconds: Annotated[
        Seconds,
        rarely("The time between two looks for what is too old to keep, and for deletions and bulk actions left over."),
    ] = 60.0
    outcome_retention_hours: Annotated[
        float, Meta(ge=0.001, le=87_600), says("How long it is remembered how each attempt ended.")
    ] = 72.0
    schedule_retention_days: Annotated[
        float, Meta(ge=0.0001, le=3_650), says("How long a finished schedule is remembered.")
    ] = 7.0
    batch_retention_days: Annotated[
        float, Meta(ge=0.0001, le=3_650), rarely("How long the batches of a completed job are remembered.")
    ] = 7.0
    job_retention_days: Annotated[
        float,
        Meta(ge=0, le=3_650),
        says(
            "How long a job is remembered after its end, with all that is stored of it; 0 keeps it until it is deleted."
        ),
    ] = 0.0
    key_retention_hours: Annotated[
        float,
        Meta(ge=0.001, le=8_760),
        rarely(
            "How long an Idempotency-Key is remembered. Choose no more than outcome_retention_hours: the outcome tells "
            "that a repeated POST to .../fire has fired already."
        ),
    ] = 24.0

    def __post_init__(self) -> None:
        # Half of so short a lease is trusted, and what is held was claimed two ticks ahead.
        if self.lease_seconds < _TICKS_OF_A_LEASE * self.tick_seconds:
            raise ValueError(f"lease_seconds: {_TICKS_OF_A_LEASE} times tick_seconds at least")
        if 0 < self.job_retention_days * 24 < self.key_retention_hours:
            raise ValueError(
                "job_retention_days: key_retention_hours at least, or 0 to keep jobs. The Idempotency-Key of a deleted "
                "job is forgotten, so a repeated POST would send the job again"
            )

    @property
    def lookahead_seconds(self) -> float:
        """How far ahead of their moment occurrences are claimed, leases that end by then among them."""
        return _LOOKAHEAD_TICKS * self.tick_seconds + self.early_seconds

    @property
    def firing_seconds(self) -> float:
        """How long before its end a lease is no longer trusted: what was fired before that is stored by the end."""
        return min(_FIRING_SECONDS, self.lease_seconds / 2)

    @property
    def answer_seconds(self) -> float:
        """How long a target may take to answer. If leases ended meanwhile, every silence would look like a death."""
        return _ANSWER_SHARE * self.firing_seconds


class CallbackSettings(Section, frozen=True):
    """The targets of schedules' callbacks, and the calls by HTTP."""

    exchanges: Annotated[tuple[str, ...], says("RabbitMQ exchanges open to callbacks; queues are.")] = ()
    topics: Annotated[tuple[str, ...], says("Kafka topics that callbacks may append to.")] = ()
    allowed_networks: Annotated[
        tuple[str, ...], says("Private networks (CIDR) that HTTP callbacks may reach all the same.")
    ] = ()
    call_timeout_seconds: Annotated[Seconds, rarely("How long an HTTP callback may take.")] = 10.0
    calls_in_flight: Annotated[
        Count, rarely("HTTP callbacks that a worker makes at the same time; one namespace gets three quarters of them.")
    ] = 200
    calls_per_host: Annotated[
        Count, rarely("How many of these go to one host; one namespace gets three quarters of them.")
    ] = 100
    signing_secret: Annotated[
        str,
        says(
            "Signs HTTP callbacks without a secret of their own (Standard Webhooks, whsec_…). /signing-secrets derives "
            "those of namespaces from it, so they change with it; empty: unsigned."
        ),
    ] = ""

    def __post_init__(self) -> None:
        check_networks("allowed_networks", self.allowed_networks)


class FeedbackSettings(Section, frozen=True):
    """The feedback consumer: it counts what the receivers say about each job's pushes."""

    topics: Annotated[str, says("A regular expression for the topics to read.")] = "^.*-feedbacks$"
    group: Annotated[Name, rarely("The consumer group.")] = "carillon-feedback"
    flush_seconds: Annotated[Seconds, rarely("The time between two writes of the counts.")] = 5.0
    max_outcomes: Annotated[
        Count, rarely("Different outcomes counted for a job; further ones are counted as `other`.")
    ] = 100

    def __post_init__(self) -> None:
        try:
            re.compile(self.topics)
        except re.error as error:
            raise ValueError(f"topics: not a regular expression: {error}") from None


class HealthSettings(Section, frozen=True):
    """The port of /livez, /readyz and /metrics, in every process."""

    host: Annotated[str, says("The address to listen on.")] = "127.0.0.1"
    port: Annotated[Port, says("The port to listen on; 0 takes a free one.")] = 9090
    certificate_file: Annotated[
        str, rarely("The certificate (PEM, chain included) by which it speaks HTTPS; empty: plain HTTP.")
    ] = ""
    key_file: Annotated[str, rarely("Private key (PEM). Empty: the key is in certificate_file.")] = ""
    max_connections: Annotated[Count, rarely("Connections at the same time, besides those of the API.")] = 32

    def __post_init__(self) -> None:
        check_key_file(self.certificate_file, self.key_file)


class LogSettings(Section, frozen=True):
    """Logs, one line each, on stderr."""

    level: Annotated[Literal["debug", "info", "warning", "error"], says("The least severe lines that are written.")] = (
        "info"
    )
    format: Annotated[
        Literal["auto", "console", "json"], rarely("auto is console on a terminal and json elsewhere.")
    ] = "auto"


class ShutdownSettings(Section, frozen=True):
    """The end of a process on SIGTERM or SIGINT. A second signal ends it at once; nothing is lost."""

    readiness_seconds: Annotated[
        float, Meta(ge=0, le=600), rarely("How long /readyz fails first, for load balancers to look away.")
    ] = 2.0
    grace_seconds: Annotated[float, Meta(ge=0, le=3_600), says("How long the work in hand may take after that.")] = 25.0


class EmbeddedSettings(Section, frozen=True):
    """`carillon up`: all services in one process, with servers of their own."""

    data_dir: Annotated[str, Meta(min_length=1), says("The folder that holds all data.")] = ".carillon"


class AuditSettings(Section, frozen=True):
    """The record of acts."""

    services: Annotated[
        Literal["skipped", "written"],
        says(
            "Whether what services do with their own schedules, one by one, is written down, too, by two writes a "
            "request: skipped or written."
        ),
    ] = "skipped"
    reasons: Annotated[
        Literal["optional", "required"],
        rarely("Whether to stop, delete, discard or otherwise end something takes a reason: optional or required."),
    ] = "optional"
    retention_days: Annotated[float, Meta(ge=0.001, le=36_500), rarely("How long it is remembered who did what.")] = (
        400.0
    )


class Settings(Section, frozen=True):
    """The settings of a process, in sections."""

    store: StoreSettings = StoreSettings()
    broker: BrokerSettings = BrokerSettings()
    stream: StreamSettings = StreamSettings()
    audience: AudienceSettings = AudienceSettings()
    blobs: BlobSettings = BlobSettings()
    api: ApiSettings = ApiSettings()
    worker: WorkerSettings = WorkerSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    callbacks: CallbackSettings = CallbackSettings()
    feedback: FeedbackSettings = FeedbackSettings()
    mail: MailSettings = MailSettings()
    providers: ProviderSettings = ProviderSettings()
    health: HealthSettings = HealthSettings()
    logs: LogSettings = LogSettings()
    shutdown: ShutdownSettings = ShutdownSettings()
    embedded: EmbeddedSettings = EmbeddedSettings()
    audit: AuditSettings = AuditSettings()
    tls: TlsSettings = TlsSettings()
    tracing: TracingSettings = TracingSettings()
    bus: BusSettings = BusSettings()

    def sections(self) -> dict[str, Any]:
        """Every section by its name."""
        return {name: getattr(self, name) for name in self.__struct_fields__}
