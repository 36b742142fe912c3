"""Who may call: users (named by a trusted proxy), service tokens, and the apps that both may touch.

The rules of their fields are Marathon's, and the text of an error begins as Marathon's does: `invalid bundleId`.
"""

import hashlib
import re
import uuid
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from shared.domain.audiences import check_app_name
from shared.domain.errors import Conflict, Invalid

NAME_CHARACTERS = 255
BUNDLE_ID = re.compile(r"[a-z0-9]+(?:\.[a-z0-9]+){2,}")
EMAIL_CHARACTERS = 254
EMAIL = re.compile(
    r"""[^\s@()<>\[\],;:\\".\x00-\x1f\x7f]+ (?: \. [^\s@()<>\[\],;:\\".\x00-\x1f\x7f]+ )*
    @ (?: [^\W_] (?: (?:[^\W_]|-)* [^\W_] )? \. )+ [^\W_] (?: (?:[^\W_]|-)* [^\W_] )?""",
    re.VERBOSE,
)
UUID_FORMS = re.compile(
    r"(?:urn:uuid:)?(?P<canonical>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    r"|(?P<plain>[0-9a-f]{32})"
    r"|\{(?P<braced>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\}",
    re.IGNORECASE | re.ASCII,
)


class App(Struct, frozen=True, kw_only=True):
    """A mobile app: `name` makes its table and topic names and is unique but for its case, as is `bundle_id`. Times in
    ns since the epoch.

    `going` tells that its deletion has begun: it takes no more jobs and templates, for good.
    """

    id: str
    name: str
    bundle_id: str
    created_by: str
    created_at: int
    updated_at: int
    going: bool = False


class User(Struct, frozen=True, kw_only=True):
    """A person. Admins may do everything; others what belongs to their `allowed_apps`."""

    id: str
    email: str
    is_admin: bool = False
    allowed_apps: tuple[str, ...] | None = None
    created_by: str = ""
    created_at: int = 0
    updated_at: int = 0


class Token(Struct, frozen=True, kw_only=True):
    """A service's credential. Only `digest`, the SHA-256 of the secret, is stored."""

    id: str
    name: str
    digest: str
    is_admin: bool = False
    allowed_apps: tuple[str, ...] = ()
    created_by: str = ""
    created_at: int = 0


class Caller(Struct, frozen=True, kw_only=True):
    """The identity behind one request. `namespace` owns what the caller creates under keys of its own choice."""

    namespace: str
    name: str
    is_admin: bool
    allowed_apps: frozenset[str]

    def may_use(self, app_id: str) -> bool:
        """Whether the caller may touch what belongs to this app."""
        return self.is_admin or app_id in self.allowed_apps


class RevokedKind(StrEnum):
    """Whether a service's token was revoked or a person was deleted."""

    TOKEN = "token"
    USER = "user"


class Revocation(Struct, frozen=True, kw_only=True):
    """A caller who was taken out. `id` is their namespace, `subject_id` the id of their token or user.

    `paused` tells that all schedules that were there have been paused, `spared` which of them an admin has resumed
    since.
    """

    id: str
    kind: RevokedKind
    subject_id: str
    at: datetime
    paused: bool = False
    spared: tuple[str, ...] = ()


def user_namespace(email: str) -> str:
    """What owns the schedules of the person with this address."""
    return f"user:{email}"


def token_namespace(token_id: str) -> str:
    """What owns the schedules of the service with this token."""
    return f"token:{token_id}"


def user_caller(user: User) -> Caller:
    """The identity of a person."""
    return Caller(
        namespace=user_namespace(user.email),
        name=user.email,
        is_admin=user.is_admin,
        allowed_apps=frozenset(user.allowed_apps or ()),
    )


def token_caller(token: Token) -> Caller:
    """The identity of a service. Its namespace outlives a change of name."""
    return Caller(
        namespace=token_namespace(token.id),
        name=token.name,
        is_admin=token.is_admin,
        allowed_apps=frozenset(token.allowed_apps),
    )


def secret_digest(secret: str) -> str:
    """What is stored of a token's secret: SHA-256, in hex. It is random, so it needs no salt and no stretching."""
    return hashlib.sha256(secret.encode()).hexdigest()


def time_ordered_id(now: int, noise: int) -> str:
    """A UUID (version 7) that sorts by its time, to a quarter of a microsecond: `now` in ns, `noise` 62 random bits."""
    milliseconds, rest = divmod(now, 1_000_000)
    fraction = rest * 4096 // 1_000_000
    bits = milliseconds << 80 | 7 << 76 | fraction << 64 | 2 << 62 | noise & (1 << 62) - 1
    return str(uuid.UUID(int=bits))


def read_uuid(text: str, *, field: str) -> str:
    """The canonical form of a UUID that was given as such, as 32 hex digits, in braces or as a URN.

    Raises:
        Invalid: it is none of these.
    """
    match = UUID_FORMS.fullmatch(text)
    if match is None:
        raise Invalid(f"{field} must be a UUID", field=field, value=text)
    return str(uuid.UUID(hex=next(filter(None, match.groups()))))


def check_app(name: str, bundle_id: str) -> None:
    """Raise `Invalid` for the first of an app's fields that breaks its rule."""
    check_app_name(name)
    if len(bundle_id) > NAME_CHARACTERS or BUNDLE_ID.fullmatch(bundle_id) is None:
        rule = "at least three labels of lower-case letters and digits, joined by dots, as in com.example.game"
        raise Invalid(f"invalid bundleId: {rule}", field="bundleId", value=bundle_id)


def name_key(name: str) -> str:
    """What two apps must not share of their names: push tables make no difference between cases."""
    return name.lower()


def check_staying(app: App | None, app_id: str) -> None:
    """Raise `Conflict` where an app takes nothing new, because its deletion has begun or is done."""
    if app is None or app.going:
        raise Conflict("the app is being deleted", field="appId", value=app_id)


def check_email(email: str) -> None:
    """Raise `Invalid` where this is not an e-mail address with a dot in its domain."""
    if len(email) > EMAIL_CHARACTERS or EMAIL.fullmatch(email) is None:
        raise Invalid("invalid email: an address such as name@example.com is needed", field="email", value=email)


def check_token_name(name: str) -> None:
    """Raise `Invalid` where this cannot be a token's name."""
    if not 1 <= len(name) <= NAME_CHARACTERS or not name.isprintable():
        raise Invalid("invalid name: 1 to 255 printable characters are needed", field="name", value=name)
