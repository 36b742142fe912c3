"""Records: the messages on Kafka for one device, for each push service, in the published Marathon's form; their sizes
and topics.

Records differ in three places only: the token, the message id and the user id. So a shape is a plain dictionary
with a `Slot` in each of these places. It becomes a `Frame` of JSON text around them, and the records of a batch are
joined from that. `SERVICES` has an entry for each push service.

Two things differ from Marathon on purpose, and a setting restores each (`RecordRules`). `push_expiry` is in
milliseconds, because the receiver compares it with these and would drop every push in seconds. And `time_to_live`
is a duration, not an instant.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from shared.accounts.rules.apps import check_app_name
from shared.core.errors import Invalid
from shared.jobs.rules.jobs import Job
from shared.jobs.rules.templates import Template, Unrenderable, dumps, filled_bytes

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


# The bytes around a body: keys, ids, the token and the user id.
_ENVELOPE_BYTES = 600
# A batch is rendered as a whole, and several are in flight: large records make small batches.
_BATCH_BYTES = 8_000_000


def fitting_records(job: Job) -> int:
    """The maximum of the job's records in a batch, which is limited in bytes."""
    return max(1, _BATCH_BYTES // largest_record_bytes(job))


def largest_record_bytes(job: Job) -> int:
    """The approximate size of the largest record of the job's templates, with its constant parts and a device's own."""
    bodies = [_body_bytes(template, job.context) for template in job.plan.templates]
    return max(bodies, default=0) + len(dumps(job.metadata).encode()) + _ENVELOPE_BYTES


def _body_bytes(template: Template, context: Mapping[str, Any]) -> int:
    try:
        return filled_bytes(template, context)
    except Unrenderable:
        return 0


MAX_TOPIC_CHARACTERS = 249
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")


def topic_name(template: str, app_name: str, service: str) -> str:
    """The topic of an app and a service: they fill the two `%s` of the template, or of the service's own one, in that
    order."""
    check_app_name(app_name)
    parts = (SERVICES[service].topic_template or template).split("%s")
    name = f"{app_name.join(parts[:2])}{service}{parts[-1]}"
    if len(parts) != 3 or len(name) > MAX_TOPIC_CHARACTERS or not _TOPIC.fullmatch(name):
        rule = f"needs exactly two %s and makes up to {MAX_TOPIC_CHARACTERS} letters, digits, '.', '-' and '_'"
        raise Invalid(f"the topic template {rule}", field="topic_template", value=template)
    return name


def topic_pattern(template: str) -> str:
    """A regular expression for all topic names that `topic_name` makes from this template."""
    templates = {service.topic_template or template for service in SERVICES.values()}
    return "|".join(".+".join(map(re.escape, template.split("%s"))) for template in sorted(templates))
