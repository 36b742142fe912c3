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

from importlib import import_module
from typing import Any

_NAMES = {
    "accounts": "App Apps Device IssuedToken Role Sessions StoredToken StoredUser Token Tokens User Users",
    "bus": (
        "BusAttempt BusDeadLetter BusDeadLetters BusDeliveries BusDelivery BusRetried Event Pressure "
        "PublishedEvent Topic Topics WholeBusDeadLetter WholeBusDelivery"
    ),
    "bus_subscriptions": (
        "BusHealth BusReplay BusSubscription BusSubscriptions EventCondition EventFilter StoredBusSubscription"
    ),
    "calls": "Async Sync",
    "client": "AsyncCarillon Carillon",
    "console": "Audit BulkAct BulkAction BulkActions BulkFailure BulkFigures BulkFilter Queues",
    "credentials": (
        "Credential CredentialChange CredentialDetail CredentialQueue CredentialStatus Credentials "
        "Reencrypted SendRetry StoredCredential"
    ),
    "dead_letters": "DeadLetters",
    "errors": "CarillonError Conflict Forbidden Invalid NotFound Unauthorized Unavailable",
    "jobs": "Group Groups Jobs Move MoveFigures ZoneJob",
    "messages": (
        "Attempt HaltRule JobQueue Message MessageCounts MessageJob Messages Redacted SendResult SingleMessage "
        "StoredSuppression Suppression SuppressionResult Suppressions"
    ),
    "push_jobs": (
        "AudienceCount Batch JobEvent JobPreview JobStage LocaleCount MessageSample MessagesPreview Notice "
        "PushJob QueuePreview Rate RatePoint Sample Samples StoredJob ZoneCount ZonePreview ZoneStart"
    ),
    "schedules": ("Calendars Callback OutcomeResult Schedule ScheduleState Schedules StoredSchedule job_callback"),
    "signing": "NotVerified SigningSecrets verify",
    "templates": "Rendering StoredTemplate Template Templates Upload UploadPart Uploads",
    "wire": "ItemError",
    "wire.console": (
        "ActedOn Actor Attention AuditRecord BrowserSession Caller InHand Minute Namespace OpenJobs Overview Process "
        "Queue Setting Sign SigningSecret Unknown"
    ),
    "wire.clock": (
        "BulkResult DeadLetter DueInstant DueInstants ErrorCount FireWithin Fired HttpCallback JobCallback "
        "KafkaCallback LeftOut MovedSchedules Outcome RabbitCallback Retry ScheduleName StoredCalendar WholeDeadLetter"
    ),
}
"""Each module with its public names, as `__init__.pyi` tells them to type checkers. A name is loaded at its first use:
a program that needs only `carillon.wire` loads no HTTP client."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = [*_MODULES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"carillon.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
