"""The body of a subscription, as Routemaster's clients send it."""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from services.api.http.strict_bodies import decode_body
from shared.domain.bus.wishes import SubscriptionWish
from shared.flow.bus.published_wishes import LONGEST_TIMEOUT_MS, read_published_wish
from shared.outgoing.checks import CheckUrl


class PublishedSubscriptionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A client's subscription. `timeout` and `max` stay as they are if they are left out."""

    topics: Annotated[list[str], Meta(description="All topics of the subscription; those left out are left.")]
    callback: Annotated[
        str,
        Meta(
            description="The receiver of events: an `https` URL without a query. A user in it stands for `uuid`.",
            pattern="^https?://",
            examples=["https://app.example.com/events"],
        ),
    ]
    uuid: Annotated[str | None, Meta(description="The user name of deliveries' basic auth.")] = None
    timeout: Annotated[
        Annotated[int, Meta(ge=0, le=LONGEST_TIMEOUT_MS)] | None,
        Meta(description="For how long an event waits for others, in milliseconds; of a new one 500."),
    ] = None
    max: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="How many events a delivery has at most; of a new one 100. None has over 10,000."),
    ] = None


_decoder = msgspec.json.Decoder(PublishedSubscriptionBody)


def read_subscription(content: bytes, namespace: str, *, check_url: CheckUrl, allow_http: bool) -> SubscriptionWish:
    """The body's wish for the namespace's published subscription. Raises `Invalid`."""
    body = decode_body(content, _decoder)
    return read_published_wish(
        namespace,
        topics=body.topics,
        callback=body.callback,
        uuid=body.uuid,
        timeout_ms=body.timeout,
        max_events=body.max,
        check_url=check_url,
        allow_http=allow_http,
    )
