"""Topics: the first publisher on a topic owns it; subscribing leaves it unowned."""

import re
from datetime import datetime

from msgspec import Struct

from shared.domain.errors import Forbidden, Invalid

NOTICES = "carillon_notices"
"""The topic of Carillon's own notices about suspended subscriptions and lost events
(`shared/domain/bus/notices.py`)."""

NOTIFIER = "carillon"
"""The namespace of Carillon as a publisher. All others begin with `token:` or `user:`."""

RESERVED_PREFIX = "carillon_"
"""Only Carillon publishes on topics with this prefix."""

EVERYBODY = "everybody"
"""The audience of a notice to all namespaces, none of which has this name."""

DESCRIPTION_CHARACTERS = 1_000

_PUBLISHED_NAME = re.compile(r"[a-z_]{1,64}")
_NAME = re.compile(r"[a-z0-9_.-]{1,64}")


class PrivateTopic(Forbidden):
    """The topic is private to another namespace."""


class Topic(Struct, frozen=True, kw_only=True):
    """A topic. `id` is its name; `owner` is the namespace that may publish on it, `""` for none yet. Only its owner
    subscribes to a `private` one."""

    id: str
    owner: str = ""
    description: str = ""
    private: bool = False
    created_at: datetime

    def may_publish(self, namespace: str) -> bool:
        return self.owner in ("", namespace)

    def check_subscriber(self, namespace: str, *, field: str) -> None:
        if self.private and self.owner != namespace:
            rule = f"the topic {self.id} is private: only its owner subscribes to it"
            raise PrivateTopic(rule, field=field, value=self.id)


def is_own(name: str) -> bool:
    return name.startswith(RESERVED_PREFIX)


def check_topic_name(name: str, *, field: str) -> None:
    """Raise `Invalid` if this cannot be a topic's name. Clients remove `.` and `..` from a path, so these would name
    another resource."""
    if _NAME.fullmatch(name) is None or name in {".", ".."}:
        rule = "a topic's name is 1 to 64 of a to z, 0 to 9, '_', '.' and '-', and neither '.' nor '..'"
        raise Invalid(rule, field=field, value=name)


def check_published_name(name: str, *, field: str) -> None:
    if _PUBLISHED_NAME.fullmatch(name) is None:
        raise Invalid("a topic's name is 1 to 64 of a to z and '_'", field=field, value=name)
