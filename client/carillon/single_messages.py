"""Single messages: what is asked for, and what became of an item of many."""

from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from carillon.definitions import ItemError
from carillon.displays import Result
from carillon.instants import in_utc


class SingleMessage(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A message to one recipient by a credential (its name or id): what a `template` of the app says, or a `body` of
    its own, with its tags filled by `parameters`. It is sent at `send_at`, by default now, and not from `expires_at`
    on. A message that is not `transactional` does not go to those who have unsubscribed, from `list` or from
    everything.

    Raises:
        ValueError: a time has no time zone.
    """

    credential: str
    to: str
    template: str = ""
    body: Mapping[str, Any] | None = None
    locale: str = "en"
    parameters: Mapping[str, Any] = {}
    default_region: str = ""
    send_at: datetime | None = None
    expires_at: datetime | None = None
    list: str = ""
    transactional: bool = True

    def __post_init__(self) -> None:
        for name in ("send_at", "expires_at"):
            if (moment := getattr(self, name)) is not None:
                force_setattr(self, name, in_utc(moment, name))

    def __repr__(self) -> str:
        """Without what is personal: this ends in logs."""
        return f"SingleMessage(credential={self.credential!r}, template={self.template!r})"


class SendResult(Result, frozen=True, kw_only=True):
    """The result of the item with this index: `id` is that of its message, `status` the one that the item would have
    been answered with on its own."""

    id: str | None
    status: int
    error: ItemError | None = None

    @property
    def created(self) -> bool:
        """Whether it is new; one that an equal request has made before is not, and is no error."""
        return self.status == HTTPStatus.CREATED
