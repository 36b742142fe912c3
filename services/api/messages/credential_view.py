"""A credential as clients see it: never its secret."""

from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from services.api.http import wire
from services.api.http.wire import Timestamp
from shared.domain.instants import format_instant, format_maybe
from shared.domain.messages.credentials import Credential, CredentialStatus, OnUnknown, SendOrder
from shared.domain.messages.flowing import CredentialStanding
from shared.domain.messages.pacing import Limit


class SendRetryView(Struct, frozen=True, kw_only=True, rename="camel"):
    """How often a message is attempted that the provider does not take now, and the pauses between, in seconds."""

    attempts: int
    first_delay_seconds: float
    factor: float
    cap_seconds: float


class CredentialView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A credential. Another secret has another `fingerprint`, which is `""` where the kind needs none. `why` says why
    it does not send: what the provider said, or the reason of whoever suspended it. `redacted` says that the values of
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
    """The work that waits for a credential: so many open `jobs` (counted up to 1,000, the oldest) of all apps that
    share it, with so many `messages` that were not sent. The `held` ones belong to jobs that do not run now. The job of
    the oldest of the others might have sent it at `oldestUnsent`."""

    jobs: int
    messages: int
    held: int
    oldest_unsent: Timestamp | None


class CredentialDetail(CredentialView, frozen=True, kw_only=True, rename="camel"):
    """A credential, and how it stands, up to a second ago. It sends `effectiveRate` messages a second now: less than
    its `rate` after the provider said that they came too fast, and 0 while it does not send. `limitedBy` is its
    limit: the `rate`, `maxInFlight`, the `provider` (which wants a pause, or has slowed it), or the `clock` of a
    worker. `work` means that nothing waits, or that its workers are too slow. It is `null` while the credential does
    not send. The provider has asked for a pause up to `holdUntil`."""

    effective_rate: float
    limited_by: Limit | None
    hold_until: Timestamp | None
    queue: CredentialQueueView


def credential_detail(view: CredentialView, standing: CredentialStanding) -> CredentialDetail:
    """The credential with how it stands."""
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
        fields=dict.fromkeys(view.fields, wire.hide("any")),
        test_recipient=wire.hide(view.test_recipient),
        test_content={},
        redacted=True,
    )
