from carillon.accounts import (
    App as App,
)
from carillon.accounts import (
    Apps as Apps,
)
from carillon.accounts import (
    Device as Device,
)
from carillon.accounts import (
    IssuedToken as IssuedToken,
)
from carillon.accounts import (
    Role as Role,
)
from carillon.accounts import (
    Sessions as Sessions,
)
from carillon.accounts import (
    StoredToken as StoredToken,
)
from carillon.accounts import (
    StoredUser as StoredUser,
)
from carillon.accounts import (
    Token as Token,
)
from carillon.accounts import (
    Tokens as Tokens,
)
from carillon.accounts import (
    User as User,
)
from carillon.accounts import (
    Users as Users,
)
from carillon.bus import (
    BusAttempt as BusAttempt,
)
from carillon.bus import (
    BusDeadLetter as BusDeadLetter,
)
from carillon.bus import (
    BusDeadLetters as BusDeadLetters,
)
from carillon.bus import (
    BusDeliveries as BusDeliveries,
)
from carillon.bus import (
    BusDelivery as BusDelivery,
)
from carillon.bus import (
    BusRetried as BusRetried,
)
from carillon.bus import (
    Event as Event,
)
from carillon.bus import (
    Pressure as Pressure,
)
from carillon.bus import (
    PublishedEvent as PublishedEvent,
)
from carillon.bus import (
    Topic as Topic,
)
from carillon.bus import (
    Topics as Topics,
)
from carillon.bus import (
    WholeBusDeadLetter as WholeBusDeadLetter,
)
from carillon.bus import (
    WholeBusDelivery as WholeBusDelivery,
)
from carillon.bus_subscriptions import (
    BusHealth as BusHealth,
)
from carillon.bus_subscriptions import (
    BusReplay as BusReplay,
)
from carillon.bus_subscriptions import (
    BusSubscription as BusSubscription,
)
from carillon.bus_subscriptions import (
    BusSubscriptions as BusSubscriptions,
)
from carillon.bus_subscriptions import (
    EventCondition as EventCondition,
)
from carillon.bus_subscriptions import (
    EventFilter as EventFilter,
)
from carillon.bus_subscriptions import (
    StoredBusSubscription as StoredBusSubscription,
)
from carillon.calls import (
    Async as Async,
)
from carillon.calls import (
    Sync as Sync,
)
from carillon.client import (
    AsyncCarillon as AsyncCarillon,
)
from carillon.client import (
    Carillon as Carillon,
)
from carillon.console import (
    Audit as Audit,
)
from carillon.console import (
    BulkAct as BulkAct,
)
from carillon.console import (
    BulkAction as BulkAction,
)
from carillon.console import (
    BulkActions as BulkActions,
)
from carillon.console import (
    BulkFailure as BulkFailure,
)
from carillon.console import (
    BulkFigures as BulkFigures,
)
from carillon.console import (
    BulkFilter as BulkFilter,
)
from carillon.console import (
    Queues as Queues,
)
from carillon.credentials import (
    Credential as Credential,
)
from carillon.credentials import (
    CredentialChange as CredentialChange,
)
from carillon.credentials import (
    CredentialDetail as CredentialDetail,
)
from carillon.credentials import (
    CredentialQueue as CredentialQueue,
)
from carillon.credentials import (
    Credentials as Credentials,
)
from carillon.credentials import (
    CredentialStatus as CredentialStatus,
)
from carillon.credentials import (
    Reencrypted as Reencrypted,
)
from carillon.credentials import (
    SendRetry as SendRetry,
)
from carillon.credentials import (
    StoredCredential as StoredCredential,
)
from carillon.dead_letters import (
    DeadLetters as DeadLetters,
)
from carillon.errors import (
    CarillonError as CarillonError,
)
from carillon.errors import (
    Conflict as Conflict,
)
from carillon.errors import (
    Forbidden as Forbidden,
)
from carillon.errors import (
    Invalid as Invalid,
)
from carillon.errors import (
    NotFound as NotFound,
)
from carillon.errors import (
    Unauthorized as Unauthorized,
)
from carillon.errors import (
    Unavailable as Unavailable,
)
from carillon.jobs import (
    Group as Group,
)
from carillon.jobs import (
    Groups as Groups,
)
from carillon.jobs import (
    Jobs as Jobs,
)
from carillon.jobs import (
    Move as Move,
)
from carillon.jobs import (
    MoveFigures as MoveFigures,
)
from carillon.jobs import (
    ZoneJob as ZoneJob,
)
from carillon.messages import (
    Attempt as Attempt,
)
from carillon.messages import (
    HaltRule as HaltRule,
)
from carillon.messages import (
    JobQueue as JobQueue,
)
from carillon.messages import (
    Message as Message,
)
from carillon.messages import (
    MessageCounts as MessageCounts,
)
from carillon.messages import (
    MessageJob as MessageJob,
)
from carillon.messages import (
    Messages as Messages,
)
from carillon.messages import (
    Redacted as Redacted,
)
from carillon.messages import (
    SendResult as SendResult,
)
from carillon.messages import (
    SingleMessage as SingleMessage,
)
from carillon.messages import (
    StoredSuppression as StoredSuppression,
)
from carillon.messages import (
    Suppression as Suppression,
)
from carillon.messages import (
    SuppressionResult as SuppressionResult,
)
from carillon.messages import (
    Suppressions as Suppressions,
)
from carillon.push_jobs import (
    AudienceCount as AudienceCount,
)
from carillon.push_jobs import (
    Batch as Batch,
)
from carillon.push_jobs import (
    JobEvent as JobEvent,
)
from carillon.push_jobs import (
    JobPreview as JobPreview,
)
from carillon.push_jobs import (
    JobStage as JobStage,
)
from carillon.push_jobs import (
    LocaleCount as LocaleCount,
)
from carillon.push_jobs import (
    MessageSample as MessageSample,
)
from carillon.push_jobs import (
    MessagesPreview as MessagesPreview,
)
from carillon.push_jobs import (
    Notice as Notice,
)
from carillon.push_jobs import (
    PushJob as PushJob,
)
from carillon.push_jobs import (
    QueuePreview as QueuePreview,
)
from carillon.push_jobs import (
    Rate as Rate,
)
from carillon.push_jobs import (
    RatePoint as RatePoint,
)
from carillon.push_jobs import (
    Sample as Sample,
)
from carillon.push_jobs import (
    Samples as Samples,
)
from carillon.push_jobs import (
    StoredJob as StoredJob,
)
from carillon.push_jobs import (
    ZoneCount as ZoneCount,
)
from carillon.push_jobs import (
    ZonePreview as ZonePreview,
)
from carillon.push_jobs import (
    ZoneStart as ZoneStart,
)
from carillon.schedules import (
    Calendars as Calendars,
)
from carillon.schedules import (
    Callback as Callback,
)
from carillon.schedules import (
    OutcomeResult as OutcomeResult,
)
from carillon.schedules import (
    Schedule as Schedule,
)
from carillon.schedules import (
    Schedules as Schedules,
)
from carillon.schedules import (
    ScheduleState as ScheduleState,
)
from carillon.schedules import (
    StoredSchedule as StoredSchedule,
)
from carillon.schedules import (
    job_callback as job_callback,
)
from carillon.signing import (
    NotVerified as NotVerified,
)
from carillon.signing import (
    SigningSecrets as SigningSecrets,
)
from carillon.signing import (
    verify as verify,
)
from carillon.templates import (
    Rendering as Rendering,
)
from carillon.templates import (
    StoredTemplate as StoredTemplate,
)
from carillon.templates import (
    Template as Template,
)
from carillon.templates import (
    Templates as Templates,
)
from carillon.templates import (
    Upload as Upload,
)
from carillon.templates import (
    UploadPart as UploadPart,
)
from carillon.templates import (
    Uploads as Uploads,
)
from carillon.wire import (
    ItemError as ItemError,
)
from carillon.wire.clock import (
    BulkResult as BulkResult,
)
from carillon.wire.clock import (
    DeadLetter as DeadLetter,
)
from carillon.wire.clock import (
    DueInstant as DueInstant,
)
from carillon.wire.clock import (
    DueInstants as DueInstants,
)
from carillon.wire.clock import (
    ErrorCount as ErrorCount,
)
from carillon.wire.clock import (
    Fired as Fired,
)
from carillon.wire.clock import (
    FireWithin as FireWithin,
)
from carillon.wire.clock import (
    HttpCallback as HttpCallback,
)
from carillon.wire.clock import (
    JobCallback as JobCallback,
)
from carillon.wire.clock import (
    KafkaCallback as KafkaCallback,
)
from carillon.wire.clock import (
    LeftOut as LeftOut,
)
from carillon.wire.clock import (
    MovedSchedules as MovedSchedules,
)
from carillon.wire.clock import (
    Outcome as Outcome,
)
from carillon.wire.clock import (
    RabbitCallback as RabbitCallback,
)
from carillon.wire.clock import (
    Retry as Retry,
)
from carillon.wire.clock import (
    ScheduleName as ScheduleName,
)
from carillon.wire.clock import (
    StoredCalendar as StoredCalendar,
)
from carillon.wire.clock import (
    WholeDeadLetter as WholeDeadLetter,
)
from carillon.wire.console import (
    ActedOn as ActedOn,
)
from carillon.wire.console import (
    Actor as Actor,
)
from carillon.wire.console import (
    Attention as Attention,
)
from carillon.wire.console import (
    AuditRecord as AuditRecord,
)
from carillon.wire.console import (
    BrowserSession as BrowserSession,
)
from carillon.wire.console import (
    Caller as Caller,
)
from carillon.wire.console import (
    InHand as InHand,
)
from carillon.wire.console import (
    Minute as Minute,
)
from carillon.wire.console import (
    Namespace as Namespace,
)
from carillon.wire.console import (
    OpenJobs as OpenJobs,
)
from carillon.wire.console import (
    Overview as Overview,
)
from carillon.wire.console import (
    Process as Process,
)
from carillon.wire.console import (
    Queue as Queue,
)
from carillon.wire.console import (
    Setting as Setting,
)
from carillon.wire.console import (
    Sign as Sign,
)
from carillon.wire.console import (
    SigningSecret as SigningSecret,
)
from carillon.wire.console import (
    Unknown as Unknown,
)
