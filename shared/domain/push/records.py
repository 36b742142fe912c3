"""Records: the messages on Kafka for one device, for each push service, in the published Marathon's form.

Records differ in three places only: the token, the message id and the user id. So a shape is a plain dictionary with a
`Slot` in each of these places. It becomes a `Frame` of JSON text around them, and the records of a batch are joined
from that. `SERVICES` has an entry for each push service.

Two things differ from Marathon on purpose, and a setting restores each (`RecordRules`). `push_expiry` is in
milliseconds, because the receiver compares it with these and would drop every push in seconds. And `time_to_live` is a
duration, not an instant.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from shared.domain.jobs.jobs import Job
from shared.domain.jobs.templates import dumps

SECOND = 1_000_000_000
LONGEST_TIME_TO_LIVE = 2_419_200


class RecordRules(Struct, frozen=True, kw_only=True):
    """The choices of a deployment.

    `push_expiry` is the unit of that field for APNS. `time_to_live` is GCM's field: the remaining seconds, with
    `push_expiry` in ms beside it, or, as in Marathon, only the instant in seconds since the epoch.
    """

    push_expiry: Literal["ms", "seconds"] = "ms"
    time_to_live: Literal["remaining", "absolute"] = "remaining"
    max_record_bytes: int = 1_000_000


class Slot(Enum):
    """The place of a device's own text. A shape has each slot once, in this order."""

    TOKEN = "token"
    MESSAGE_ID = "message id"
    USER_ID = "user id"


class Frame(NamedTuple):
    """The JSON text of a record before, between and after its slots, with the quotes of the slots."""

    head: bytes
    before_message_id: bytes
    before_user_id: bytes
    tail: bytes


class Push(Struct, frozen=True):
    """The common parts of all records of one template at one moment (`now`, in ns since the epoch)."""

    job: Job
    template_name: str
    body: dict[str, Any]
    now: int
    rules: RecordRules


class PushService(Struct, frozen=True, kw_only=True):
    """A push service: its record as a dictionary with slots, the length of its tokens, and the usual name of its
    devices. Its topics follow the deployment's template, or its own, with two `%s` for app and service."""

    fields: Callable[[Push], dict[str, Any]]
    token_characters: int
    platform: str
    topic_template: str = ""


def apns_fields(push: Push) -> dict[str, Any]:
    """The record for Apple's service: the body is `Payload.aps`."""
    return {
        "DeviceToken": Slot.TOKEN,
        "Payload": {"aps": push.body, **_custom(push)},
        "push_expiry": push.job.expires_at // (SECOND // 1000 if push.rules.push_expiry == "ms" else SECOND),
        "metadata": _metadata(push),
    }


def gcm_fields(push: Push) -> dict[str, Any]:
    """The record for Google's service: the body is `data`, to which Carillon adds `m` and `templateName`."""
    return {
        "to": Slot.TOKEN,
        "data": {**push.body, **_custom(push)},
        **_time_to_live(push),
        "dry_run": is_dry_run(push.job),
        "message_id": "",
        "metadata": _metadata(push),
    }


APNS = "apns"
GCM = "gcm"

SERVICES: dict[str, PushService] = {
    APNS: PushService(fields=apns_fields, token_characters=64, platform="iOS"),
    GCM: PushService(fields=gcm_fields, token_characters=152, platform="Android"),
}
"""Every push service that a job can address, by its name in jobs and in the names of tables and topics: lower-case
letters and digits."""


def is_dry_run(job: Job) -> bool:
    return job.metadata.get("dryRun") is True


def frame(push: Push) -> Frame:
    slots: list[Slot] = []
    texts = [""]
    for piece in _pieces(SERVICES[push.job.service].fields(push)):
        if isinstance(piece, Slot):
            slots.append(piece)
            texts[-1] += '"'
            texts.append('"')
        else:
            texts[-1] += piece
    if slots != list(Slot):
        raise AssertionError(f"the shape for {push.job.service} must hold every slot once, in their order")
    return Frame(*(text.encode() for text in texts))


def _custom(push: Push) -> dict[str, Any]:
    own = {"m": push.job.metadata} if push.job.metadata else {}
    return {**own, "templateName": push.template_name}


def _metadata(push: Push) -> dict[str, Any]:
    dry_run = push.job.metadata.get("dryRun")
    return {
        "jobId": push.job.id,
        "muid": Slot.MESSAGE_ID,
        "pushTime": push.now // SECOND,
        "pushType": "massive",
        "templateName": push.template_name,
        "userId": Slot.USER_ID,
        **({"dryRun": dry_run} if isinstance(dry_run, bool) else {}),
    }


def _time_to_live(push: Push) -> dict[str, Any]:
    expires_at = push.job.expires_at
    if not expires_at:
        return {}
    if push.rules.time_to_live == "absolute":
        return {"time_to_live": expires_at // SECOND}
    # A negative number would make the whole message unreadable for the receiver.
    remaining = max(0, (expires_at - push.now) // SECOND)
    return {"time_to_live": min(remaining, LONGEST_TIME_TO_LIVE), "push_expiry": expires_at // (SECOND // 1000)}


def _pieces(value: Any) -> Iterator[str | Slot]:
    match value:
        case Slot():
            yield value
        case dict():
            separator = "{"
            for key, inner in value.items():
                yield f"{separator}{dumps(key)}:"
                yield from _pieces(inner)
                separator = ","
            yield "}" if value else "{}"
        case _:
            yield dumps(value)
