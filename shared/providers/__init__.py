"""Provider accounts: each takes one message for one recipient, and says what came of it.

Guarantees of every kind, to which one contract holds them all (`tests/providers/test_contract.py`):

- **One call, one answer.** Nothing is repeated inside, neither by us nor by a driver. A caller that wants another
  attempt makes another call. One thing is no repeat: a provider ends a connection that had messages before, and has
  certainly not taken the next one (421 by SMTP, GOAWAY by HTTP/2). That one goes by another connection, once.
- **The last word is the caller's.** `before_bytes` is asked with a connection in hand, right before the bytes are
  written. If it refuses, the provider has no byte of the message that counts, and `send` raises `NotCalled`. It is not
  asked where there is no connection: that is `NotNow`.
- **Doubt is told as doubt.** A call that broke or timed out before the first byte is `NotNow`; behind it,
  `CallUnanswered`. A provider's own error counts as "not taken" only where it says so.
- **A call ends** by `ProviderRules.call_seconds`: waiting for a connection, DNS, TLS, login, the message, the answer.
- **Nothing leaks.** No `repr`, error or detail shows a secret or a whole address.

Whatever a provider or the network does comes back as an `Answer`; `send` raises `NotCalled` and nothing else. A kind is
one module here, and `kinds.py` lists them; how to add one is told in `docs/adding-a-provider.md`.
"""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol
from urllib.parse import quote

import msgspec
from msgspec import Struct

from shared.domain.errors import CarillonError, NotFound
from shared.domain.messages.answers import Answer
from shared.domain.messages.channels import Channel
from shared.outgoing import Outgoing
from shared.providers.callbacks import Callback, CallbackRequest

__all__ = ["BeforeBytes", "Content", "NotCalled", "Provider", "ProviderKind", "ProviderRules", "message_of", "read_key"]

Content = dict[str, Any]
"""A rendered template body. Mail: subject, text, html; SMS: text; push: the payload; http: any JSON."""

BeforeBytes = Callable[[], bool]
"""Whether the call may still begin. It neither waits nor raises."""

_ATTEMPT = "~"
_NAME_CHARACTERS = 16
_KEY = re.compile(r"(?P<message>[A-Za-z0-9._-]{1,255})(?:~(?P<attempt>[0-9]{1,9}))?")


class NotCalled(CarillonError):
    """`before_bytes` refused: the provider has certainly not taken the message."""


class ProviderRules(Struct, frozen=True):
    """The rules of a deployment for all its provider accounts.

    `call_seconds` is the whole of a call. `allowed_networks` (CIDR) may be called whatever they are. Callbacks are to
    come to `public_url`. The sandbox writes to `sandbox_file`, and is refused where there is none.
    """

    call_seconds: float = 10.0
    allowed_networks: tuple[str, ...] = ()
    public_url: str = ""
    sandbox_file: str = ""

    def callback_url(self, credential: str, key: str) -> str | None:
        """The URL at which a provider may tell the fate of a message; `None` without a public URL or a credential."""
        if not self.public_url or not credential:
            return None
        return f"{self.public_url.rstrip('/')}/callbacks/{quote(credential, safe='')}/{quote(key, safe='')}"


class Provider(Protocol):
    """One provider account, ready to send."""

    async def send(self, content: Content, to: str, key: str, before_bytes: BeforeBytes) -> Answer:
        """Hand the message over. `key` is its id with its attempt, `<message>~<attempt>`: a provider that knows
        idempotency keys is given the id, and one whose callbacks carry a text of ours the whole key.

        Raises:
            NotCalled: `before_bytes` refused.
        """

    async def close(self) -> None:
        """Let go of what this account holds open; calls under way may end as `NotNow` or `CallUnanswered`."""


class ProviderKind(ABC):
    """A kind of provider: what an account of it needs, and how one is opened."""

    name: ClassVar[str]
    channel: ClassVar[Channel]

    @abstractmethod
    def check(self, fields: Mapping[str, Any], secret: Mapping[str, str]) -> None:
        """Raise `Invalid`, which names field and rule and never shows a secret, unless an account can be made of these.

        `fields` are the kind's own, as the API names them; the fields of `secret` are named `secret.…`.
        """

    @abstractmethod
    def check_content(self, body: Mapping[str, Any]) -> None:
        """Raise `Invalid` unless messages of this template's body can be sent. Tags may still stand in it."""

    def repeats_safely(self, fields: Mapping[str, Any]) -> bool:
        """Whether a second call with the same message id does no harm: the provider drops or replaces it. Unless a kind
        says so, nobody counts on it."""
        return False

    def repeats_within(self, fields: Mapping[str, Any]) -> str:
        """A short name of whom a second call with the same message id does no harm at; `""` where it may. Two accounts,
        or one before and after a change, of which it differs may know nothing of each other's calls."""
        if not self.repeats_safely(fields):
            return ""
        told = msgspec.json.encode([self.name, fields], order="sorted")
        return hashlib.sha256(told).hexdigest()[:_NAME_CHARACTERS]

    @abstractmethod
    def open(
        self, fields: Mapping[str, Any], secret: Mapping[str, str], outgoing: Outgoing, credential: str = ""
    ) -> Provider:
        """The account, in the running event loop; nothing is connected to yet. `check` has passed. Callbacks come back
        under the id of its `credential`; where that or the public URL is missing, none are asked for."""

    async def read_callback(
        self, fields: Mapping[str, Any], secret: Mapping[str, str], request: CallbackRequest, outgoing: Outgoing
    ) -> Callback:
        """The news that a provider's callback brings of messages of this account. Unless a kind says so, its providers
        tell nothing.

        Raises:
            NotSigned: nothing proves that the provider has sent it.
            Invalid: the provider has, and it cannot be read.
            NotFound: this kind has no callbacks.
            Unavailable: it cannot be verified now.
        """
        raise NotFound("this kind of provider has no callbacks", field="credentialId")


def message_of(key: str) -> str:
    """The message's id in `<message>~<attempt>`."""
    return key.partition(_ATTEMPT)[0]


def read_key(key: str) -> tuple[str, int]:
    """The message's id and the attempt in `<message>~<attempt>`; `("", 0)` for what is no key of ours, and 0 for an
    attempt that is left out."""
    found = _KEY.fullmatch(key)
    return (found["message"], int(found["attempt"] or 0)) if found else ("", 0)
