"""Clients of Carillon's HTTP API, typed, with retries that never double: `Carillon` for synchronous programs and
`AsyncCarillon` for asyncio, with the same resources.

```python
with Carillon("http://localhost:8080", token="carillon_…") as client:
    stored = client.schedules.create(
        Schedule(
            key="training-invitations-42",
            instants=[datetime(2030, 12, 24, 14, tzinfo=UTC)],
            callback=RabbitCallback(queue="training.invitations.notifications", payload={"id": "42"}),
        )
    )
```

A call is attempted again after a connection error, a time-out, 429, 502, 503 and 504. Each POST carries an
`Idempotency-Key`, the same on all its attempts; other calls are idempotent by themselves. So an attempt whose answer
was lost is not done twice, and the answer is that of the first.
"""

from carillon.apps import App, Apps, Device
from carillon.async_client import AsyncCarillon
from carillon.audit import ActedOn, Actor, Audit, AuditRecord
from carillon.batches import Batch, Rate, RatePoint, Samples
from carillon.blocking_client import Carillon
from carillon.bulk_actions import BulkAct, BulkAction, BulkActions, BulkFailure, BulkFigures, BulkFilter
from carillon.bus_dead_letters import BusAttempt, BusDeadLetter, BusDeadLetters, BusRetried, WholeBusDeadLetter
from carillon.bus_deliveries import BusDeliveries, BusDelivery, WholeBusDelivery
from carillon.bus_subscriptions import (
    BusHealth,
    BusReplay,
    BusSubscription,
    BusSubscriptions,
    EventCondition,
    EventFilter,
    StoredBusSubscription,
)
from carillon.callbacks import Callback, HttpCallback, KafkaCallback, RabbitCallback
from carillon.calls import Async, Sync
from carillon.credentials import (
    Credential,
    CredentialChange,
    CredentialDetail,
    CredentialQueue,
    Credentials,
    CredentialStatus,
    Reencrypted,
    SendRetry,
    StoredCredential,
)
from carillon.dead_letters import DeadLetter, DeadLetters, ErrorCount, WholeDeadLetter
from carillon.definitions import (
    BulkResult,
    DueInstant,
    DueInstants,
    Fired,
    FireWithin,
    ItemError,
    Outcome,
    OutcomeResult,
    Retry,
    Schedule,
    ScheduleState,
    StoredSchedule,
)
from carillon.deliveries import NotVerified, verify
from carillon.deployment import Caller, Namespace
from carillon.errors import (
    CarillonError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Unauthorized,
    Unavailable,
)
from carillon.groups import Group, Groups, ZoneJob
from carillon.jobs import Jobs
from carillon.message_jobs import HaltRule, JobQueue, MessageCounts, MessageJob
from carillon.messages import Attempt, Message, Messages, Redacted
from carillon.moves import Move, MoveFigures
from carillon.overview import Attention, OpenJobs, Overview, Sign, Unknown
from carillon.previews import (
    AudienceCount,
    JobPreview,
    LocaleCount,
    MessageSample,
    MessagesPreview,
    Notice,
    QueuePreview,
    Sample,
    ZoneCount,
    ZonePreview,
)
from carillon.processes import InHand, Minute, Process, Setting
from carillon.push_jobs import JobEvent, JobStage, PushJob, StoredJob, ZoneStart
from carillon.queues import Queue, Queues
from carillon.schedules import Schedules
from carillon.sessions import BrowserSession, Sessions
from carillon.signing_secrets import SigningSecret, SigningSecrets
from carillon.single_messages import SendResult, SingleMessage
from carillon.suppressions import StoredSuppression, Suppression, SuppressionResult, Suppressions
from carillon.templates import Rendering, StoredTemplate, Template, Templates
from carillon.tokens import IssuedToken, StoredToken, Token, Tokens
from carillon.topics import Event, Pressure, PublishedEvent, Topic, Topics
from carillon.uploads import Upload, UploadPart, Uploads
from carillon.users import Role, StoredUser, User, Users

__all__ = [
    "ActedOn",
    "Actor",
    "App",
    "Apps",
    "Async",
    "AsyncCarillon",
    "Attempt",
    "Attention",
    "AudienceCount",
    "Audit",
    "AuditRecord",
    "Batch",
    "BrowserSession",
    "BulkAct",
    "BulkAction",
    "BulkActions",
    "BulkFailure",
    "BulkFigures",
    "BulkFilter",
    "BulkResult",
    "BusAttempt",
    "BusDeadLetter",
    "BusDeadLetters",
    "BusDeliveries",
    "BusDelivery",
    "BusHealth",
    "BusReplay",
    "BusRetried",
    "BusSubscription",
    "BusSubscriptions",
    "Callback",
    "Caller",
    "Carillon",
    "CarillonError",
    "Conflict",
    "Credential",
    "CredentialChange",
    "CredentialDetail",
    "CredentialQueue",
    "CredentialStatus",
    "Credentials",
    "DeadLetter",
    "DeadLetters",
    "Device",
    "DueInstant",
    "DueInstants",
    "ErrorCount",
    "Event",
    "EventCondition",
    "EventFilter",
    "FireWithin",
    "Fired",
    "Forbidden",
    "Group",
    "Groups",
    "HaltRule",
    "HttpCallback",
    "InHand",
    "Invalid",
    "IssuedToken",
    "ItemError",
    "JobEvent",
    "JobPreview",
    "JobQueue",
    "JobStage",
    "Jobs",
    "KafkaCallback",
    "LocaleCount",
    "Message",
    "MessageCounts",
    "MessageJob",
    "MessageSample",
    "Messages",
    "MessagesPreview",
    "Minute",
    "Move",
    "MoveFigures",
    "Namespace",
    "NotFound",
    "NotVerified",
    "Notice",
    "OpenJobs",
    "Outcome",
    "OutcomeResult",
    "Overview",
    "Pressure",
    "Process",
    "PublishedEvent",
    "PushJob",
    "Queue",
    "QueuePreview",
    "Queues",
    "RabbitCallback",
    "Rate",
    "RatePoint",
    "Redacted",
    "Reencrypted",
    "Rendering",
    "Retry",
    "Role",
    "Sample",
    "Samples",
    "Schedule",
    "ScheduleState",
    "Schedules",
    "SendResult",
    "SendRetry",
    "Sessions",
    "Setting",
    "Sign",
    "SigningSecret",
    "SigningSecrets",
    "SingleMessage",
    "StoredBusSubscription",
    "StoredCredential",
    "StoredJob",
    "StoredSchedule",
    "StoredSuppression",
    "StoredTemplate",
    "StoredToken",
    "StoredUser",
    "Suppression",
    "SuppressionResult",
    "Suppressions",
    "Sync",
    "Template",
    "Templates",
    "Token",
    "Tokens",
    "Topic",
    "Topics",
    "Unauthorized",
    "Unavailable",
    "Unknown",
    "Upload",
    "UploadPart",
    "Uploads",
    "User",
    "Users",
    "WholeBusDeadLetter",
    "WholeBusDelivery",
    "WholeDeadLetter",
    "ZoneCount",
    "ZoneJob",
    "ZonePreview",
    "ZoneStart",
    "verify",
]
