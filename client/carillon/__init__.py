"""A client of Carillon's HTTP API: schedules, dead letters, push jobs and their files, typed, with retries that never
double.

```python
async with AsyncCarillon("http://localhost:8080", token="carillon_…") as client:
    stored = await client.schedules.create(
        Schedule(
            key="training-invitations-42",
            instants=[datetime(2030, 12, 24, 14, tzinfo=UTC)],
            callback=RabbitCallback(queue="training.invitations.notifications", payload={"id": "42"}),
        )
    )
```

A call is attempted again after a connection error, a time-out, 429, 502, 503 and 504. Each POST carries an
`Idempotency-Key`, the same on all its attempts; what else there is is idempotent by itself. So an attempt whose answer
was lost is not done twice, and the answer is that of the first.
"""

from carillon.async_client import AsyncCarillon
from carillon.blocking_client import Carillon
from carillon.callbacks import Callback, HttpCallback, KafkaCallback, RabbitCallback
from carillon.dead_letters import DeadLetter, DeadLetters
from carillon.definitions import (
    BulkResult,
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
from carillon.previews import (
    AudienceCount,
    JobPreview,
    LocaleCount,
    Notice,
    Sample,
    ZoneCount,
    ZonePreview,
)
from carillon.push_jobs import JobEvent, JobStage, PushJob, StoredJob, ZoneStart
from carillon.schedules import Schedules
from carillon.signing_secrets import SigningSecret, SigningSecrets
from carillon.uploads import Uploads

__all__ = [
    "AsyncCarillon",
    "AudienceCount",
    "BulkResult",
    "Callback",
    "Carillon",
    "CarillonError",
    "Conflict",
    "DeadLetter",
    "DeadLetters",
    "FireWithin",
    "Fired",
    "Forbidden",
    "Group",
    "Groups",
    "HttpCallback",
    "Invalid",
    "ItemError",
    "JobEvent",
    "JobPreview",
    "JobStage",
    "Jobs",
    "KafkaCallback",
    "LocaleCount",
    "NotFound",
    "Notice",
    "Outcome",
    "OutcomeResult",
    "PushJob",
    "RabbitCallback",
    "Retry",
    "Sample",
    "Schedule",
    "ScheduleState",
    "Schedules",
    "SigningSecret",
    "SigningSecrets",
    "StoredJob",
    "StoredSchedule",
    "Unauthorized",
    "Unavailable",
    "Uploads",
    "ZoneCount",
    "ZoneJob",
    "ZonePreview",
    "ZoneStart",
]
