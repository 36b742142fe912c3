"""`client.credentials`: the provider accounts that an app sends messages by."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from msgspec import Struct

from carillon.calls import CONFLICT, PAGE_SIZE, M, Resource, call, listing
from carillon.values import encode
from carillon.wire import Short

SendOrder = Literal["age", "shares"]
OnUnknown = Literal["hold", "retry"]


class CredentialStatus(StrEnum):
    """Whether a credential sends."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    """A user has stopped it."""
    REJECTED = "rejected"
    """The provider knows its secret no more."""


class SendRetry(Struct, frozen=True, kw_only=True, rename="camel"):
    """How often a message is attempted that the provider does not take now (1 to 20), and the pauses between."""

    attempts: int = 3
    first_delay_seconds: float = 5.0
    factor: float = 4.0
    cap_seconds: float = 300.0


class CredentialChange(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The changed fields of a credential; a field that is `None` stays. A new `rate` also changes `max_in_flight`, if
    that was the default for the old one. Only admins change `shared_with`."""

    name: str | None = None
    rate: float | None = None
    max_in_flight: int | None = None
    order: SendOrder | None = None
    on_unknown: OnUnknown | None = None
    retry: SendRetry | None = None
    test_recipient: str | None = None
    test_content: Mapping[str, Any] | None = None
    shared_with: Sequence[str] | None = None


class Credential(CredentialChange, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A provider account to be made. `fields` and `secret` are as its `kind` wants them. A test message goes to
    `test_recipient`. A field that is `None` takes the default of the kind: a `rate` of 50 messages a second, 10 for
    `twilio`."""

    name: str
    kind: str
    fields: Mapping[str, Any] = {}
    secret: Mapping[str, str] = {}
    test_recipient: str

    def __repr__(self) -> str:
        """Without the secret: this ends in logs."""
        return f"Credential(name={self.name!r}, kind={self.kind!r})"


class StoredCredential(Short, frozen=True, kw_only=True, rename="camel"):
    """A credential without its secret. Another secret has another `fingerprint`. `why` says why it does not send.
    `redacted` says that the values of `fields`, `test_recipient` and `test_content` are left out: the caller is a
    viewer, or the credential is another app's that shares it."""

    id: str
    app_id: str
    name: str
    kind: str
    fields: Mapping[str, Any]
    fingerprint: str
    rate: float
    max_in_flight: int
    order: str
    on_unknown: str
    retry: SendRetry
    test_recipient: str
    test_content: Mapping[str, Any]
    shared_with: tuple[str, ...]
    status: CredentialStatus
    why: str
    created_by: str
    created_at: datetime
    updated_at: datetime
    redacted: bool = False


class CredentialQueue(Struct, frozen=True, kw_only=True, rename="camel"):
    """The work that waits for a credential: the open `jobs` and their unsent `messages`. The `held`
    ones belong to jobs that do not run now; the oldest of the others waits since `oldest_unsent`."""

    jobs: int
    messages: int
    held: int
    oldest_unsent: datetime | None


class CredentialDetail(StoredCredential, frozen=True, kw_only=True, rename="camel"):
    """A credential with its figures: its `effective_rate`, in messages a second, is less than its `rate` after the
    provider said that they came too fast. `limited_by` is `rate`, `maxInFlight`, `provider`, `clock` or `work`, and
    `None` where it does not send. The provider has asked for a pause up to `hold_until`."""

    effective_rate: float
    limited_by: str | None
    hold_until: datetime | None
    queue: CredentialQueue


class Reencrypted(Struct, frozen=True, kw_only=True):
    """How many secrets were encrypted anew, how many still are under older keys, and how many of these no key opens."""

    reencrypted: int
    remaining: int
    unreadable: int


class Credentials(Resource[M]):
    """The credentials of apps. All methods raise `CarillonError`.

    A method that sends a test message (`create`, `replace_secret`, `test`) is not attempted again once an attempt may
    have reached the server, so that no provider gets several: `Unavailable` then means that the outcome is
    unknown; `list` shows it.
    """

    @call
    async def create(self, app_id: str, credential: Credential, *, reason: str = "") -> StoredCredential:
        """Make a credential; the provider gets a test message first. Raises `Invalid`, also if the provider refuses the
        message or gives no answer, and `Conflict` if the app has one of this name."""
        content = encode(credential)
        return await self._post(
            StoredCredential, "apps", app_id, "credentials", content=content, reason=reason, once=True
        )

    @call
    async def get(self, app_id: str, credential_id: str) -> CredentialDetail:
        """A credential that the app may use, with its figures. Raises `NotFound`."""
        return await self._get(CredentialDetail, "apps", app_id, "credentials", credential_id)

    @listing
    def list(
        self, app_id: str, *, limit: int | None = None, page_size: int = PAGE_SIZE
    ) -> AsyncGenerator[StoredCredential]:
        """All credentials that an app may use, its own and others', the oldest first; read page by page."""
        return self._list(list[StoredCredential], "apps", app_id, "credentials", limit=limit, page_size=page_size)

    @call
    async def update(
        self, app_id: str, credential_id: str, change: CredentialChange, *, reason: str = ""
    ) -> StoredCredential:
        """Change a credential. Raises `NotFound`, `Invalid`, `Conflict`, `Forbidden` where it is another app's."""
        content = encode(change)
        return await self._put(
            StoredCredential, "apps", app_id, "credentials", credential_id, content=content, reason=reason
        )

    @call
    async def replace_secret(
        self,
        app_id: str,
        credential_id: str,
        secret: Mapping[str, str],
        *,
        fields: Mapping[str, Any] | None = None,
        reason: str = "",
    ) -> StoredCredential:
        """Give a credential another secret, and with it other `fields`; the provider gets a test message first. Raises
        as `create`, and `NotFound`."""
        body = {"secret": secret} | ({} if fields is None else {"fields": fields})
        return await self._put(
            StoredCredential,
            "apps",
            app_id,
            "credentials",
            credential_id,
            "secret",
            content=encode(body),
            reason=reason,
            once=True,
        )

    @call
    async def test(self, app_id: str, credential_id: str, *, reason: str = "") -> None:
        """Send a test message. Raises as `create`, and `NotFound`."""
        await self._call("POST", "apps", app_id, "credentials", credential_id, "test", reason=reason, once=True)

    @call
    async def suspend(self, app_id: str, credential_id: str, *, reason: str = "") -> StoredCredential:
        """Have it send nothing until it is activated. Raises `NotFound`, `Conflict` where it is suspended."""
        return await self._move(app_id, credential_id, "suspend", CredentialStatus.SUSPENDED, reason)

    @call
    async def activate(self, app_id: str, credential_id: str, *, reason: str = "") -> StoredCredential:
        """Have it send again. Raises `NotFound`, `Conflict` where it is active."""
        return await self._move(app_id, credential_id, "activate", CredentialStatus.ACTIVE, reason)

    @call
    async def delete(self, app_id: str, credential_id: str, *, reason: str = "") -> None:
        """Delete a credential. Raises `NotFound`, `Conflict` while an open job sends by it."""
        await self._delete("apps", app_id, "credentials", credential_id, reason=reason)

    @call
    async def reencrypt(self, *, reason: str = "") -> Reencrypted:
        """Encrypt up to 500 secrets under the first key that are under older ones, as an admin."""
        return await self._post(Reencrypted, "credentials", "reencrypt", reason=reason)

    async def _move(
        self, app_id: str, credential_id: str, move: str, to: CredentialStatus, reason: str
    ) -> StoredCredential:
        path = ("apps", app_id, "credentials", credential_id)
        answer = await self._call("POST", *path, move, reason=reason, done_before=CONFLICT)
        return await self._settle_move(StoredCredential, *path, answer=answer, is_moved=lambda now: now.status is to)
