"""The bodies of the routes of suppressions, and a suppression as clients see it."""

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from services.api.http import wire
from services.api.http.strict_bodies import decode_body
from services.api.http.wire import Timestamp
from shared.domain.errors import Invalid
from shared.domain.instants import format_instant, format_maybe
from shared.domain.messages.channels import Channel
from shared.domain.messages.phone_numbers import check_region
from shared.domain.messages.recipients import Malformed, read_address
from shared.domain.messages.suppressions import (
    LIST_CHARACTERS,
    Suppression,
    SuppressionCause,
    check_list,
    suppress_address,
)
from shared.domain.messages.unsubscribing import EVERYTHING

ChannelField = Annotated[Channel, Meta(description="The channel of the address. Each kind of credential has one.")]
AddressField = Annotated[
    str,
    Meta(
        description="The address of who is to get nothing more, in any spelling.",
        extra_json_schema={"minLength": 1, "maxLength": 1024, "examples": ["ana@example.com"]},
    ),
]
ListField = Annotated[
    str,
    Meta(
        description='The list that is meant, as jobs name it; `""`, the default, is everything.',
        extra_json_schema={"maxLength": LIST_CHARACTERS},
    ),
]
CauseField = Annotated[
    SuppressionCause,
    Meta(description="`unsubscribe` lets messages pass that are `transactional`; the others are bars for all."),
]
RegionField = Annotated[
    str,
    Meta(
        description="Whose phone numbers those without a country code are.",
        extra_json_schema={"examples": ["SG"]},
    ),
]


class SuppressionBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Somebody who is to get nothing more of an app by this channel."""

    channel: ChannelField
    address: AddressField
    list: ListField = EVERYTHING
    cause: CauseField = SuppressionCause.HAND
    default_region: RegionField = ""


class SuppressionView(Struct, frozen=True, kw_only=True, rename="camel"):
    """Somebody who gets nothing more. `address` is `""` where the recipient has unsubscribed by a link, which does not
    know it: `?address=` finds these too. `messageId` is that of the message that bounced or was complained about.
    `unsubscribedAt` says that the recipient has unsubscribed, whatever the cause; that stays when a bar is deleted.
    `redacted` says that the caller is a viewer, who sees no address."""

    id: str
    app_id: str
    channel: Channel
    address: str
    list: str
    cause: SuppressionCause
    message_id: str
    at: Timestamp
    unsubscribed_at: Timestamp | None
    redacted: bool = False


_decoder = msgspec.json.Decoder(SuppressionBody)


def read_suppression(content: bytes, app_id: str, *, at: datetime) -> Suppression:
    """The suppression that a body asks for. Raises `Invalid`, which shows nothing of the address."""
    body = decode_body(content, _decoder)
    check_list(body.list)
    address = read_address(body.address, body.channel, check_region(body.default_region))
    if isinstance(address, Malformed):
        raise Invalid(f"malformed address: {address.why}", field="address")
    return suppress_address(app_id, body.channel, address, cause=body.cause, at=at, list_name=body.list)


def suppression_view(suppression: Suppression, *, whole: bool = True) -> SuppressionView:
    """The suppression; without `whole` not whom it is of."""
    unsubscribed_at = suppression.unsubscribed_at
    return SuppressionView(
        id=suppression.id,
        app_id=suppression.app_id,
        channel=suppression.channel,
        address=suppression.address if whole else wire.hide(suppression.address),
        list=suppression.list,
        cause=suppression.cause,
        message_id=suppression.message_id,
        at=format_instant(suppression.at),
        unsubscribed_at=format_maybe(unsubscribed_at),
        redacted=not whole,
    )
