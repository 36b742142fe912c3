"""Provider accounts: each takes one message for one recipient, and answers what became of it.

Guarantees of every kind, tested by one contract (`tests/providers/test_contract.py`):

- **One call, one answer.** Neither Carillon nor a driver repeats a call; a caller that wants another attempt makes
  another call. One case is no repetition: a provider ends a connection that had messages before, and has certainly not
  taken the next one (421 by SMTP, GOAWAY by HTTP/2). That message goes by another connection, once.
- **The caller decides last.** `before_bytes` is asked when a connection is ready, right before the bytes are written.
  If it refuses, the provider has no byte of the message that counts, and `send` raises `NotCalled`. Without a
  connection it is not asked: that is `NotNow`.
- **Doubt is reported as doubt.** A call that broke or timed out before the first byte is `NotNow`; after it,
  `CallUnanswered`. A provider's own error counts as "not taken" only if it says so.
- **A call ends** within `ProviderRules.call_seconds`: waiting for a connection, DNS, TLS, login, message, answer.
- **Nothing leaks.** No `repr`, error or detail shows a secret or a whole address.

Every reaction of a provider or the network comes back as an `Answer`; `send` raises only `NotCalled`. A kind is one
module here, and `kinds.py` lists them; `docs/adding-a-provider.md` says how to add one.
"""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol
from urllib.parse import quote

import msgspec
from msgspec import Struct

from shared.core.errors import CarillonError, NotFound
from shared.drivers.http import Outgoing
from shared.drivers.http.checks import PROVIDER_NETWORKS, check_url
from shared.messages.rules.answers import Answer, Channel
from shared.providers.base import Callback, CallbackRequest
from shared.runtime.clock import Clock, SystemClock

Content = dict[str, Any]
"""A rendered template body. Mail: subject, text, html; SMS: text; push: the payload; http: any JSON."""

BeforeBytes = Callable[[], bool]
"""Whether the call may still begin. It neither waits nor raises."""

_ATTEMPT = "~"
_NAME_CHARACTERS = 16
COLLAPSE_BYTES = 64
_KEY = re.compile(r"(?P<message>[A-Za-z0-9._-]{1,255})(?:~(?P<attempt>[0-9]{1,9}))?")


class NotCalled(CarillonError):
    """`before_bytes` refused: the provider has certainly not taken the message."""


class ProviderRules(Struct, frozen=True):
    """The rules of a deployment for all its provider accounts.

    `call_seconds` covers a whole call. `allowed_networks` (CIDR) may always be called. Callbacks come to `public_url`.
    The sandbox writes to `sandbox_file`, and is refused without one.
    """

    call_seconds: float = 10.0
    allowed_networks: tuple[str, ...] = ()
    public_url: str = ""
    sandbox_file: str = ""

    def check_url(self, url: str, field: str) -> None:
        check_url(url, allowed_networks=self.allowed_networks, field=field, setting=PROVIDER_NETWORKS)

    def callback_url(self, credential: str, key: str) -> str | None:
        if not self.public_url or not credential:
            return None
        return f"{self.public_url.rstrip('/')}/callbacks/{quote(credential, safe='')}/{quote(key, safe='')}"


class Provider(Protocol):
    """A provider account that is ready to send."""

    async def send(self, content: Content, to: str, key: str, before_bytes: BeforeBytes) -> Answer:
        """Send one message. `key` is its id with its attempt, `<message>~<attempt>`. A provider with idempotency keys
        gets the id; a provider whose callbacks repeat a text of the sender gets the whole key. Raises `NotCalled` if
        `before_bytes` refused."""

    async def close(self) -> None:
        """Close the account's connections; calls under way may end as `NotNow` or `CallUnanswered`."""


class ProviderKind(ABC):
    """A kind of provider: checks the fields of an account, and opens one."""

    name: ClassVar[str]
    channel: ClassVar[Channel]

    def __init__(self, rules: ProviderRules, clock: Clock | None = None) -> None:
        self._rules = rules
        self._clock = clock or SystemClock()

    @abstractmethod
    def check(self, fields: Mapping[str, Any], secret: Mapping[str, str]) -> None:
        """Raise `Invalid` unless these make an account. The error names field and rule, and never shows a secret.
        `fields` have the API's names; the fields of `secret` are named `secret.…`."""

    def check_content(self, body: Mapping[str, Any]) -> None:
        """Raise `Invalid` unless this template's body can be sent. It may still contain tags."""

    def repeats_safely(self, fields: Mapping[str, Any]) -> bool:
        """Whether a second call with the same message id does no harm, because the provider drops or replaces it."""
        return False

    def repeats_within(self, fields: Mapping[str, Any]) -> str:
        """A short name of the scope in which a second call with the same message id does no harm; `""` if there is
        none. Accounts with different scopes, or one before and after a change, may not know of each other's calls."""
        if not self.repeats_safely(fields):
            return ""
        told = msgspec.json.encode([self.name, fields], order="sorted")
        return hashlib.sha256(told).hexdigest()[:_NAME_CHARACTERS]

    @abstractmethod
    def open(
        self, fields: Mapping[str, Any], secret: Mapping[str, str], outgoing: Outgoing, credential: str = ""
    ) -> Provider:
        """Open a checked account in the running event loop, without connecting. Callbacks come under the id of its
        `credential`; without that or the public URL, none are requested."""

    async def read_callback(
        self, fields: Mapping[str, Any], secret: Mapping[str, str], request: CallbackRequest, outgoing: Outgoing
    ) -> Callback:
        """Read a provider's callback about messages of this account. Raises `NotSigned` if nothing proves that the
        provider sent it."""
        raise NotFound("this kind of provider has no callbacks", field="credentialId")


def message_of(key: str) -> str:
    return key.partition(_ATTEMPT)[0]


def collapse_id(key: str) -> str:
    """The id by which Apple's devices replace one push by another: the message's, or its hash if that is too long."""
    message = message_of(key).encode()
    return message.decode() if len(message) <= COLLAPSE_BYTES else hashlib.sha256(message).hexdigest()


def read_key(key: str) -> tuple[str, int]:
    """The message's id and the attempt in `<message>~<attempt>`; attempt 0 if it is missing, `("", 0)` for another
    text."""
    found = _KEY.fullmatch(key)
    return (found["message"], int(found["attempt"] or 0)) if found else ("", 0)
