"""The bodies of the routes of credentials, and a credential as clients see it: never with its secret."""

from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from services.api.http import bodies
from services.api.http.bodies import Timestamp, decode_body
from shared.accounts.rules.callers import Caller
from shared.core.errors import Forbidden, Invalid
from shared.core.ids import read_uuid
from shared.core.instants import format_instant, format_maybe
from shared.messages.rules.answers import Channel
from shared.messages.rules.credentials import (
    ATTEMPTS,
    LARGEST_FACTOR,
    LARGEST_RATE,
    LONGEST_DELAY_SECONDS,
    MOST_IN_FLIGHT,
    SHARING_APPS,
    SMALLEST_RATE,
    Credential,
    CredentialStanding,
    CredentialStatus,
    OnUnknown,
    SendOrder,
    SendRetry,
    default_max_in_flight,
    default_on_unknown,
    default_rate,
)
from shared.messages.rules.pacing import Limit

Name = Annotated[
    str,
    Meta(description="Unique in its app.", extra_json_schema={"pattern": "^[a-z0-9-]{1,50}$", "examples": ["sms"]}),
]
Kind = Annotated[str, Meta(description="The kind of provider.", extra_json_schema={"examples": ["http", "sandbox"]})]
Fields = Annotated[
    dict[str, Any],
    Meta(
        description="The fields of an account of this kind beside its secret.",
        extra_json_schema={"examples": [{"url": "https://messages.example.com/send"}]},
    ),
]
SecretParts = Annotated[
    dict[str, str],
    Meta(
        description="The secret parts of an account, by the names of its kind. They are never shown.",
        extra_json_schema={"examples": [{"signingSecret": "whsec_…"}]},
    ),
]
Rate = Annotated[
    float,
    Meta(ge=SMALLEST_RATE, le=LARGEST_RATE, description="The most messages a second, over all who use it together."),
]
InFlight = Annotated[
    int,
    Meta(
        ge=1,
        le=MOST_IN_FLIGHT,
        description="The most calls under way at a time. By default half of the rate, but from 20 to 1,000.",
    ),
]
Recipient = Annotated[
    str,
    Meta(
        description="The recipient of test messages.",
        extra_json_schema={"minLength": 1, "maxLength": 4096, "examples": ["+34600000000"]},
    ),
]
TestContent = Annotated[
    dict[str, Any],
    Meta(description="The content of a test message; by default, or if it is {}, what suits its channel."),
]
SharedWith = Annotated[
    tuple[Annotated[str, Meta(extra_json_schema={"format": "uuid"})], ...],
    Meta(description="The ids of other apps that may use it. Only admins change that.", max_length=SHARING_APPS),
]
Order = Annotated[SendOrder, Meta(description="Which job goes first: the oldest, or who has had least for its share.")]
Unknown = Annotated[
    OnUnknown,
    Meta(
        description="The treatment of a message that the provider may or may not have: nothing (`hold`), "
        "or it is sent again. By default `hold`, and `retry` for pushes, which replace themselves."
    ),
]
_Body = TypeVar("_Body")


class SendRetryBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How often a message is attempted that the provider does not take now, and the pauses between, in seconds."""

    attempts: Annotated[int, Meta(ge=1, le=ATTEMPTS)] = SendRetry().attempts
    first_delay_seconds: Annotated[float, Meta(ge=0.1, le=LONGEST_DELAY_SECONDS)] = SendRetry().first_delay_seconds
    factor: Annotated[float, Meta(ge=1, le=LARGEST_FACTOR)] = SendRetry().factor
    cap_seconds: Annotated[float, Meta(ge=0.1, le=LONGEST_DELAY_SECONDS)] = SendRetry().cap_seconds


class CredentialBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A provider account to be made. `rate` is by default 50 messages a second, and 10 of the kind `twilio`."""

    name: Name
    kind: Kind
    fields: Fields = {}
    secret: SecretParts = {}
    rate: Rate | None = None
    max_in_flight: InFlight | None = None
    order: Order | None = None
    on_unknown: Unknown | None = None
    retry: SendRetryBody | None = None
    test_recipient: Recipient
    test_content: TestContent | None = None
    shared_with: SharedWith | None = None


class CredentialChange(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Changes of a credential. Fields that are absent or null stay as they are."""

    name: Name | None = None
    rate: Rate | None = None
    max_in_flight: InFlight | None = None
    order: Order | None = None
    on_unknown: Unknown | None = None
    retry: SendRetryBody | None = None
    test_recipient: Recipient | None = None
    test_content: TestContent | None = None
    shared_with: SharedWith | None = None


class SecretBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Another secret, and the fields of the kind that go with it, if they change."""

    secret: SecretParts
    fields: Fields | None = None


body_decoder = msgspec.json.Decoder(CredentialBody)
change_decoder = msgspec.json.Decoder(CredentialChange)
secret_decoder = msgspec.json.Decoder(SecretBody)


def read_body(content: bytes, decoder: msgspec.json.Decoder[_Body]) -> _Body:
    """The body as the decoder's type. Raises `Invalid`, without the value of any field."""
    try:
        return decode_body(content, decoder)
    except Invalid as error:
        # Without its cause, too: what was decoded may have been a secret.
        raise Invalid(error.reason, field=error.field) from None


def draft_credential(
    body: CredentialBody, id: str, app_id: str, channel: Channel, *, at: datetime, caller: Caller
) -> Credential:
    """The credential that is asked for, without its secret. Only an admin shares it. Raises `Invalid`, `Forbidden`."""
    rate = default_rate(body.kind) if body.rate is None else body.rate
    return Credential(
        id=id,
        app_id=app_id,
        name=body.name,
        kind=body.kind,
        fields=body.fields,
        rate=rate,
        max_in_flight=body.max_in_flight or default_max_in_flight(rate),
        order=body.order or SendOrder.AGE,
        on_unknown=body.on_unknown or default_on_unknown(channel),
        retry=SendRetry(**asdict(body.retry or SendRetryBody())),
        test_recipient=body.test_recipient,
        test_content=body.test_content or {},
        shared_with=_read_apps(body.shared_with or (), (), caller),
        created_by=caller.name,
        created_at=at,
        updated_at=at,
    )


def apply_change(body: CredentialChange, credential: Credential, caller: Caller) -> Credential:
    """The credential with what the body names. Only an admin shares it. Raises `Invalid`, `Forbidden`."""
    if body.rate is not None:
        credential = credential.with_rate(body.rate)
    given = {
        "name": body.name,
        "max_in_flight": body.max_in_flight,
        "order": body.order,
        "on_unknown": body.on_unknown,
        "retry": None if body.retry is None else SendRetry(**asdict(body.retry)),
        "test_recipient": body.test_recipient,
        "test_content": body.test_content,
        "shared_with": None
        if body.shared_with is None
        else _read_apps(body.shared_with, credential.shared_with, caller),
    }
    return replace(credential, **{name: value for name, value in given.items() if value is not None})


def _read_apps(given: tuple[str, ...], before: tuple[str, ...], caller: Caller) -> tuple[str, ...]:
    read = (read_uuid(app_id, field=f"sharedWith[{index}]") for index, app_id in enumerate(given))
    wanted = tuple(dict.fromkeys(read))
    if not caller.is_admin and set(wanted) != set(before):
        raise Forbidden("only admins share a credential with other apps", field="sharedWith")
    return wanted


class SendRetryView(Struct, frozen=True, kw_only=True, rename="camel"):
    """How often a message is attempted that the provider does not take now, and the pauses between, in seconds."""

    attempts: int
    first_delay_seconds: float
    factor: float
    cap_seconds: float


class CredentialView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A credential. Another secret has another `fingerprint`, which is `""` where the kind needs none. `why` says why
    it does not send: what the provider said, or the reason of its suspension. `redacted` says that the values of
    `fields`, `testRecipient` and `testContent` are left out: the caller is a viewer, or the credential is another
    app's that shares it."""

    id: str
    app_id: str
    name: str
    kind: str
    fields: dict[str, Any]
    fingerprint: str
    rate: float
    max_in_flight: int
    order: SendOrder
    on_unknown: OnUnknown
    retry: SendRetryView
    test_recipient: str
    test_content: dict[str, Any]
    shared_with: tuple[str, ...]
    status: CredentialStatus
    why: str
    created_by: str
    created_at: Timestamp
    updated_at: Timestamp
    redacted: bool = False


class CredentialQueueView(Struct, frozen=True, kw_only=True, rename="camel"):
    """The work that waits for a credential: the open `jobs` (counted up to 1,000, the oldest) of all apps that
    share it, and their unsent `messages`. The `held` ones belong to jobs that do not run now. The job of
    the oldest of the others might have sent it at `oldestUnsent`."""

    jobs: int
    messages: int
    held: int
    oldest_unsent: Timestamp | None


class CredentialDetail(CredentialView, frozen=True, kw_only=True, rename="camel"):
    """A credential, with figures up to a second old. It sends `effectiveRate` messages a second now: less than
    its `rate` after the provider said that they came too fast, and 0 while it does not send. `limitedBy` is its
    limit: the `rate`, `maxInFlight`, the `provider` (which wants a pause, or has slowed it), or the `clock` of a
    worker. `work` means that nothing waits, or that its workers are too slow. It is `null` while the credential does
    not send. The provider has asked for a pause up to `holdUntil`."""

    effective_rate: float
    limited_by: Limit | None
    hold_until: Timestamp | None
    queue: CredentialQueueView


def credential_detail(view: CredentialView, standing: CredentialStanding) -> CredentialDetail:
    queue = standing.queue
    return CredentialDetail(
        **asdict(view),
        effective_rate=standing.effective_rate,
        limited_by=standing.limited_by,
        hold_until=format_maybe(standing.hold_until),
        queue=CredentialQueueView(
            jobs=queue.jobs, messages=queue.messages, held=queue.held, oldest_unsent=format_maybe(queue.oldest)
        ),
    )


def credential_view(credential: Credential, *, whole: bool = True) -> CredentialView:
    """The credential; without `whole` nothing of it that may be personal, or that says how the account is reached."""
    view = CredentialView(
        id=credential.id,
        app_id=credential.app_id,
        name=credential.name,
        kind=credential.kind,
        fields=credential.fields,
        fingerprint=credential.fingerprint,
        rate=credential.rate,
        max_in_flight=credential.max_in_flight,
        order=credential.order,
        on_unknown=credential.on_unknown,
        retry=SendRetryView(**asdict(credential.retry)),
        test_recipient=credential.test_recipient,
        test_content=credential.test_content,
        shared_with=credential.shared_with,
        status=credential.status,
        why=credential.why,
        created_by=credential.created_by,
        created_at=format_instant(credential.created_at),
        updated_at=format_instant(credential.updated_at),
    )
    return view if whole else _redact(view)


def _redact(view: CredentialView) -> CredentialView:
    return replace(
        view,
        fields=dict.fromkeys(view.fields, bodies.hide("any")),
        test_recipient=bodies.hide(view.test_recipient),
        test_content={},
        redacted=True,
    )
