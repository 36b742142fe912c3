"""Figures and checks of jobs that send by a provider account, which the body of POST names: `credential`."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from services.api.jobs.job_body import JobBody
from shared.domain.accounts.apps import App
from shared.domain.errors import Invalid
from shared.domain.jobs.batches import Receipt
from shared.domain.jobs.jobs import Job
from shared.domain.jobs.notices import Notice
from shared.domain.jobs.templates import Template


class MessageCountsView(Struct, frozen=True, kw_only=True, rename="camel"):
    """How the messages of a job stand: `planned` is the sum of the states from `unsent` to `unknown`. `repeated` counts
    second calls of messages whose first one may have succeeded. `heldOut` and `duplicates` are no part of `planned`:
    recipients of a control group, and rows of the audience that repeat one before them."""

    planned: int
    unsent: int
    sending: int
    sent: int
    delivered: int
    read: int
    failed: int
    invalid: int
    unknown: int
    repeated: int
    held_out: int
    duplicates: int


class JobQueueView(Struct, frozen=True, kw_only=True, rename="camel"):
    """The work ahead of a job in its credential: so many running `jobs`, with so many `messages` that are unsent.
    `startsIn` is in seconds, `null` where nobody can tell: the job is held or has ended, or its credential does not
    send."""

    jobs: int
    messages: int
    starts_in: float | None


class AccountFigures(Struct, frozen=True, kw_only=True):
    """How such a job stands in this `round`: its messages, the same as a `receipt`, what is ahead of it, and when it
    ends, as far as anybody can tell. `options` are what it has of its own, by the names in the body of POST."""

    round: int
    messages: MessageCountsView
    receipt: Receipt
    queue: JobQueueView
    ends_at: datetime | None
    options: dict[str, Any]


class MessageSampleView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A message by the template of one locale. It has the tag if recipients have values of their own, as in
    `{{name}}`. `bytes` is its size as JSON; `content` is `null` if it is too long to be shown."""

    locale: str
    bytes: int
    content: dict[str, Any] | None


class AccountPreview(Struct, frozen=True, kw_only=True, rename="camel"):
    """The messages that a job with a credential would send, and when. So many `recipients` were counted who would be
    called, in as much of the audience as there was time for: `exact` says that this was all, else the estimate takes
    the rest to be like it. Messages to `malformed` addresses and to `suppressed` ones would never be called, nor
    `unrendered` ones, which would be empty or too long; rows that are `repeated` get no message. With `unfilledTags`
    the job would be stopped. `samples` are of the first 20 locales.

    `queue` and `estimatedEnd` are estimates: they take the rate that the credential has now, and no other job to come.
    `estimatedEnd` is in nanoseconds since the epoch; 0 where nobody can tell."""

    exact: bool
    recipients: int
    estimated_recipients: int | None
    malformed: int
    suppressed: int
    unrendered: int
    repeated: int
    columns: list[str]
    unfilled_tags: list[str]
    samples: list[MessageSampleView]
    queue: JobQueueView
    estimated_end: int


class Foreseen(Struct, frozen=True):
    """A preview; `None` where the job would fail over its file, as the `flaw` tells. There may be a flaw besides, and
    `notices` of what is probably a mistake."""

    preview: AccountPreview | None
    flaw: Invalid | None = None
    notices: Sequence[Notice] = ()


class OwnFields(Struct, frozen=True, kw_only=True):
    """The fields that such a job has besides those of all jobs, by the names in `Job`."""

    service: str
    credential_id: str
    table_kind: str
    options: dict[str, Any]


class AccountJobs(Protocol):
    """Reads and shows what such jobs have of their own. All raise `Unavailable`."""

    async def read(self, app: App, names: tuple[str, ...], body: JobBody) -> tuple[list[Template], OwnFields]:
        """The templates, and what the body says of the job's own. Raises `Invalid`, and `Conflict` if the account sends
        nothing now: all that can be known to be wrong with the account, the templates and the table."""

    async def confirm(self, job: Job) -> None:
        """Look at the account once more, now that the job is stored: its deletion may not have seen the job. Raises
        `Conflict` where it is gone."""

    async def foresee(self, job: Job, *, seconds: float) -> Foreseen:
        """The messages of a job that is not stored and has its templates. Its recipients are counted for so many
        seconds at most."""

    async def measure(self, job: Job, *, exact: bool) -> AccountFigures:
        """How the job stands, at most a second ago while it is open; now, if that must be `exact`. In another round
        than the job's where it has been taken up again since it was read."""
