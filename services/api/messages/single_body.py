"""The body of a single message's POST."""

from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from services.api.http.strict_bodies import decode_body
from shared.domain.errors import Invalid
from shared.domain.instants import from_ms, ms, read_instant
from shared.domain.messages.recipients import ADDRESS_CHARACTERS
from shared.domain.messages.suppressions import LIST_CHARACTERS, check_list
from shared.flow.jobs.template_names import ENGLISH

_Instant = Annotated[
    str,
    Meta(extra_json_schema={"format": "date-time", "examples": ["2030-01-01T09:00:00Z"]}),
]


class SingleBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A message to one recipient: what a `template` of the app says with these `parameters`, or a `body` of its own.
    Its tags are filled by `parameters`."""

    credential: Annotated[str, Meta(description="The name or the id of the credential that it is sent by.")]
    to: Annotated[
        str,
        Meta(
            description="The recipient: a mail address, a phone number, or a token, as the credential's kind has it.",
            extra_json_schema={"minLength": 1, "maxLength": ADDRESS_CHARACTERS, "examples": ["ana@example.com"]},
        ),
    ]
    template: Annotated[str, Meta(description="The name of a template.")] = ""
    body: Annotated[
        dict[str, Any] | None,
        Meta(description="The content, in place of a template.", extra_json_schema={"examples": [{"text": "Hi"}]}),
    ] = None
    locale: Annotated[str, Meta(description="The locale of the template.", extra_json_schema={"maxLength": 10})] = (
        ENGLISH
    )
    parameters: Annotated[dict[str, Any], Meta(description="The values of the tags.")] = {}
    default_region: Annotated[str, Meta(description="The region of a phone number without a country code.")] = ""
    send_at: Annotated[_Instant | None, Meta(description="When it is sent; by default now.")] = None
    expires_at: Annotated[_Instant | None, Meta(description="From when on it is not sent any more.")] = None
    list: Annotated[
        str,
        Meta(
            description="The list that its recipient can unsubscribe from.",
            extra_json_schema={"maxLength": LIST_CHARACTERS},
        ),
    ] = ""
    transactional: Annotated[bool, Meta(description="Whether it goes to a recipient too who has unsubscribed.")] = True


class SendTimes(Struct, frozen=True):
    """When a message is to be sent, and from when on no more."""

    due: datetime
    expires_at: datetime | None


_decoder = msgspec.json.Decoder(SingleBody)


def read_single(content: bytes) -> SingleBody:
    """The body. Raises `Invalid`."""
    body = decode_body(content, _decoder)
    if bool(body.template) == (body.body is not None):
        raise Invalid("give either a template or a body", field="template")
    if body.body is not None and not body.body:
        raise Invalid("the body must not be empty", field="body")
    check_list(body.list)
    return body


def read_times(body: SingleBody, now: datetime) -> SendTimes:
    """When it is to be sent, as precise as the store keeps it: now, where that is past. Raises `Invalid`."""
    due = now if body.send_at is None else max(_read(body.send_at, "sendAt"), now)
    expires_at = None if body.expires_at is None else _read(body.expires_at, "expiresAt")
    if expires_at is not None and expires_at < due + timedelta(milliseconds=1):
        raise Invalid("expiresAt must be later than now and sendAt", field="expiresAt", value=body.expires_at)
    return SendTimes(due, expires_at)


def _read(text: str, field: str) -> datetime:
    return from_ms(ms(read_instant(text, field=field)))
