"""The callers: users, named by a trusted proxy, services with a token, and browsers.

A browser's session begins with a token, or with a link that signs in. It shows its token again with each request,
by the digest alone. So it ends with the token: when that is revoked, expires, or has its secret replaced. A
session that began by a link ends with its user.

The rules of the fields are Marathon's, and an error's text begins as Marathon's does: `invalid email`.
"""

import hashlib
import re
from collections.abc import Hashable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from shared.accounts.rules.apps import (
    EVERYWHERE,
    NAME_CHARACTERS,
    Role,
    apps_named,
    fold_email,
    fold_namespace,
    namespaces_named,
    role_over_app,
    role_over_namespace,
)
from shared.core.errors import Invalid
from shared.core.instants import format_instant

EMAIL_CHARACTERS = 254
MESSAGES_PER_SECOND = 10.0
"""The default of single messages a second for a caller."""
SMALLEST_MESSAGE_RATE, LARGEST_MESSAGE_RATE = 0.01, 10_000
USE_NOTED_EVERY = timedelta(minutes=1)
TOKEN_NAMESPACE = re.compile(r"token:[A-Za-z0-9\-_.~]{1,255}")
EMAIL = re.compile(
    r"""[^\s@()<>\[\],;:\\".\x00-\x1f\x7f]+ (?: \. [^\s@()<>\[\],;:\\".\x00-\x1f\x7f]+ )*
    @ (?: [^\W_] (?: (?:[^\W_]|-)* [^\W_] )? \. )+ [^\W_] (?: (?:[^\W_]|-)* [^\W_] )?""",
    re.VERBOSE,
)


class TokenScope(StrEnum):
    """The scope of a token. A token of the bus may be a chosen word, so it grants nothing else."""

    EVERYTHING = ""
    BUS = "bus"


class User(Struct, frozen=True, kw_only=True):
    """A person. Admins may do everything; others have the rights of their `allowed_apps` and `roles` (`roles`)."""

    id: str
    email: str
    is_admin: bool = False
    allowed_apps: tuple[str, ...] | None = None
    roles: dict[str, Role] = {}
    created_by: str = ""
    created_at: int = 0
    updated_at: int = 0


class Token(Struct, frozen=True, kw_only=True):
    """A service's credential. Only `digest`, the SHA-256 of the secret, is stored, and after a replacement that of the
    previous secret, which is valid until `previous_until`. `namespace` is "" for the one of the token's id. It was used
    at `last_used_at`, and perhaps within `USE_NOTED_EVERY` since. Its owner may send `messages_per_second` single
    messages."""

    id: str
    name: str
    digest: str
    is_admin: bool = False
    allowed_apps: tuple[str, ...] = ()
    roles: dict[str, Role] = {}
    created_by: str = ""
    created_at: int = 0
    namespace: str = ""
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    previous_digest: str = ""
    previous_until: datetime | None = None
    messages_per_second: float = MESSAGES_PER_SECOND
    scope: TokenScope = TokenScope.EVERYTHING

    @property
    def owns(self) -> str:
        return self.namespace or token_namespace(self.id)

    def why_refused(self, digest: str, now: datetime) -> str:
        """The reason why the secret of this digest is invalid now; `""` if it is valid."""
        if self.expires_at is not None and self.expires_at <= now:
            return f"this token expired at {format_instant(self.expires_at)}"
        if digest != self.digest and (self.previous_until is None or self.previous_until <= now):
            return "this secret was replaced by another one: the time in which both were good is over"
        return ""

    def is_use_unnoted(self, now: datetime) -> bool:
        return self.last_used_at is None or self.last_used_at <= now - USE_NOTED_EVERY


class Caller(Struct, frozen=True, kw_only=True):
    """The identity of one request. `namespace` owns the things that the caller creates under chosen keys; several
    tokens may share one, and `token_id` distinguishes them."""

    namespace: str
    name: str
    is_admin: bool
    allowed_apps: frozenset[str]
    roles: Mapping[str, Role] = {}
    token_id: str = ""
    messages_per_second: float = MESSAGES_PER_SECOND

    @property
    def is_service(self) -> bool:
        return self.namespace.startswith(token_namespace(""))

    @property
    def rights(self) -> Hashable:
        """Roles and apps, without the caller's own things: equal for callers with the same roles."""
        return self.is_admin, self.allowed_apps, frozenset(self.roles.items())

    @property
    def identity(self) -> Hashable:
        return self.namespace, self.name, self.token_id, self.rights

    @property
    def role_over_everything(self) -> Role | None:
        """The caller's role over everything; `None` if it is not the same everywhere."""
        return Role.ADMIN if self.is_admin else self.roles.get(EVERYWHERE)

    @property
    def apps_with_role(self) -> frozenset[str]:
        return self.allowed_apps | apps_named(self.roles)

    @property
    def namespaces_with_role(self) -> frozenset[str]:
        return namespaces_named(self.roles)

    def role_over_app(self, app_id: str) -> Role | None:
        if self.is_admin or app_id in self.allowed_apps:
            return Role.ADMIN
        return role_over_app(self.roles, app_id)

    def role_over_namespace(self, namespace: str) -> Role | None:
        if self.is_admin or fold_namespace(namespace) == self.namespace:
            return Role.ADMIN
        return role_over_namespace(self.roles, namespace)


class RevokedKind(StrEnum):
    TOKEN = "token"
    USER = "user"


class Revocation(Struct, frozen=True, kw_only=True):
    """A removed caller. `id` is the namespace of their name, `subject_id` the id of their token or user; `namespace` is
    another one that they used.

    `paused`: all schedules of that time have been paused; `spared` are those that an admin has resumed since. If other
    tokens share the namespace (`shared`), only schedules of this one and of unknown makers are paused. The same holds
    after everything has been paused: a later schedule of another token is from a new token.
    """

    id: str
    kind: RevokedKind
    subject_id: str
    at: datetime
    namespace: str = ""
    shared: bool = False
    paused: bool = False
    spared: tuple[str, ...] = ()

    @property
    def owns(self) -> str:
        return self.namespace or self.id

    def covers(self, made_by: str) -> bool:
        everything = not self.shared and not self.paused
        return everything or made_by in {"", self.subject_id}


def user_namespace(email: str) -> str:
    return f"user:{fold_email(email)}"


def token_namespace(token_id: str) -> str:
    return f"token:{token_id}"


def user_caller(user: User) -> Caller:
    return Caller(
        namespace=user_namespace(user.email),
        name=user.email,
        is_admin=user.is_admin,
        allowed_apps=frozenset(user.allowed_apps or ()),
        roles=user.roles,
    )


def token_caller(token: Token) -> Caller:
    return Caller(
        namespace=token.owns,
        name=token.name,
        is_admin=token.is_admin,
        allowed_apps=frozenset(token.allowed_apps),
        roles=token.roles,
        token_id=token.id,
        messages_per_second=token.messages_per_second,
    )


def secret_digest(secret: str) -> str:
    """The stored SHA-256, in hex. A token's secret is random: it needs no salt and no stretching."""
    return hashlib.sha256(secret.encode()).hexdigest()


def bus_digest(secret: str) -> str:
    """The stored digest of the secret of a token of the bus. It differs from that of other tokens, so that a look for
    one of those never finds it."""
    return hashlib.sha256(b"carillon bus\0" + secret.encode()).hexdigest()


def check_email(email: str) -> None:
    if len(email) > EMAIL_CHARACTERS or EMAIL.fullmatch(email) is None or not email.isprintable():
        raise Invalid("invalid email: an address such as name@example.com is needed", field="email", value=email)


def check_token_name(name: str) -> None:
    if not 1 <= len(name) <= NAME_CHARACTERS or not name.isprintable():
        raise Invalid("invalid name: 1 to 255 printable characters are needed", field="name", value=name)


def check_message_rate(rate: float) -> None:
    if not SMALLEST_MESSAGE_RATE <= rate <= LARGEST_MESSAGE_RATE:
        rule = f"it must be a number from {SMALLEST_MESSAGE_RATE} to {LARGEST_MESSAGE_RATE:,}"
        raise Invalid(f"invalid messagesPerSecond: {rule}", field="messagesPerSecond")


def check_token_namespace(namespace: str) -> None:
    if TOKEN_NAMESPACE.fullmatch(namespace) is None:
        rule = "token: and a token's id, or token: and a name of 1 to 255 letters, digits and - _ . ~"
        raise Invalid(f"a namespace is {rule}", field="namespace", value=namespace)


LONGEST = timedelta(hours=12)
IDLE = timedelta(hours=1)
SEEN_EVERY = timedelta(minutes=1)


class WebSession(Struct, frozen=True, kw_only=True):
    """A signed-in browser. `id` is the SHA-256 of its cookie, `token_digest` that of its token, or `email` names the
    user. `address` and `agent` identify the browser for its owner. While it `is_link`, no browser has it: opening the
    link begins the session."""

    id: str
    namespace: str
    token_digest: str = ""
    email: str = ""
    is_link: bool = False
    began_at: datetime
    seen_at: datetime
    ends_at: datetime
    address: str = ""
    agent: str = ""

    def is_over(self, now: datetime) -> bool:
        return now >= self.ends_at or now >= self.seen_at + IDLE

    def is_sight_unnoted(self, now: datetime) -> bool:
        return now >= self.seen_at + SEEN_EVERY
