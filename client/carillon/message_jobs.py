"""Jobs that send a message to each recipient by a credential, as they are asked for, and how they stand."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from carillon.credentials import OnUnknown
from carillon.displays import Short
from carillon.encoding import encode
from carillon.instants import nanoseconds


class HaltRule(Struct, frozen=True, kw_only=True):
    """A job is held once more than `minimum` of its messages, and more than this `share` of those answered, have
    bounced or been refused."""

    share: float = 0.1
    minimum: int = 10


class MessageJob(Struct, frozen=True, kw_only=True):
    """A job to be started that sends the `template` to each recipient by a `credential`, which is named by its name or
    its id, and when (at once without `starts_at`). `name` is for people; by default the template's. Messages not sent
    by `expires_at` are dropped.

    The recipients are the rows of the file at `csv_path`, as `uploads.put` gave it, or those that `filters` keep of the
    table `<app>_<kind>`; their addresses stand in the `recipient_column`. Columns fill the template's tags, else
    `context`.

    A field that is unset takes its default: `halt_on` is 10 % and 10 messages for mail, and never for others (`None`:
    never). A job with more than `max_recipients` is stopped while it is planned.

    Raises:
        ValueError: an instant has no time zone.
    """

    credential: str
    template: str
    csv_path: str = ""
    filters: Mapping[str, str] = {}
    context: Mapping[str, Any] = {}
    metadata: Mapping[str, Any] = {}
    starts_at: datetime | None = None
    expires_at: datetime | None = None
    name: str = ""
    id: str = ""
    recipient_column: str = ""
    locale: str = ""
    default_region: str = ""
    duplicates: Literal["", "once", "each"] = ""
    on_unknown: OnUnknown | Literal[""] = ""
    halt_on: HaltRule | UnsetType | None = UNSET
    share: int = 1
    list: str = ""
    transactional: bool = False
    max_recipients: int = 0

    def __post_init__(self) -> None:
        self._times()

    def query(self) -> Mapping[str, str]:
        """The query beside the body."""
        return {"template": self.template}

    def encoded(self) -> bytes:
        """The body of a request."""
        given: dict[str, Any] = {"credential": self.credential, "filters": self.filters, "share": self.share}
        chosen = {
            "id": self.id,
            "name": self.name,
            "csvPath": self.csv_path,
            "context": self.context,
            "metadata": self.metadata,
            "recipientColumn": self.recipient_column,
            "locale": self.locale,
            "defaultRegion": self.default_region,
            "duplicates": self.duplicates,
            "onUnknown": self.on_unknown,
            "list": self.list,
            "transactional": self.transactional,
            "maxRecipients": self.max_recipients,
        }
        halt = {} if self.halt_on is UNSET else {"haltOn": self.halt_on}
        return encode(given | self._times() | halt | {name: text for name, text in chosen.items() if text})

    def _times(self) -> dict[str, int]:
        return {
            "startsAt": nanoseconds(self.starts_at, "starts_at"),
            "expiresAt": nanoseconds(self.expires_at, "expires_at"),
        }


class MessageCounts(Short, frozen=True, kw_only=True, rename="camel"):
    """How the messages of a job stand: `planned` is the sum of the states from `unsent` to `unknown`. `repeated` counts
    second calls of messages whose first one may have succeeded; `held_out` and `duplicates` are not planned."""

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


class JobQueue(Struct, frozen=True, kw_only=True, rename="camel"):
    """The work ahead of a job in its credential: so many running `jobs` with so many unsent `messages`. `starts_in` is
    in seconds; `None` where nobody can tell."""

    jobs: int
    messages: int
    starts_in: float | None
