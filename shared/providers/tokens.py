"""Tokens that log an account in: signed ones (JSON Web Tokens, RFC 7519; RS256 for Google, ES256 for Apple), and access
tokens that Google grants in exchange for one (OAuth 2.0, RFC 7523).

The same claims give the same token, also with ES256 (RFC 6979), so all processes of a deployment can use one. One
request for an access token at a time serves all callers. In the last fifth of a token's life the next one is
requested while the old one is still used; right before its end the old one is no longer used. A failure becomes
the `Answer` to the message that waited: it was certainly not taken.
"""

import asyncio
import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from msgspec import Struct

from shared.core.errors import CarillonError, Invalid
from shared.drivers.http import Outgoing, PostedAnswer
from shared.messages.rules.answers import Answer, CallRefused, CallUnanswered, LoginRefused, NotNow
from shared.providers.base import Concealed, tell
from shared.providers.calls import Posts, judge_status, read_answer
from shared.runtime.clock import Clock

_RSA_BITS = 2_048
_ES256_BYTES = 32
_SHORTEST_LINE = 16


class SigningKey:
    """A private key in PEM. Raises `Invalid`, which names the field and shows nothing of the key."""

    def __init__(self, pem: str, field: str) -> None:
        self._key = _read_key(pem, field)
        lines = pem.replace("\\n", "\n").splitlines()
        self.hidden = (pem, *(line for line in lines if len(line) >= _SHORTEST_LINE and not line.startswith("-")))
        """Texts that would reveal a part of the key."""

    def __repr__(self) -> str:
        return "SigningKey()"

    def sign(self, claims: Mapping[str, Any], **header: str) -> str:
        algorithm = "RS256" if isinstance(self._key, rsa.RSAPrivateKey) else "ES256"
        content = b".".join(
            _base64(msgspec.json.encode(part)) for part in ({"alg": algorithm, "typ": "JWT", **header}, claims)
        )
        return b".".join((content, _base64(self._signature(content)))).decode()

    def _signature(self, content: bytes) -> bytes:
        if isinstance(self._key, rsa.RSAPrivateKey):
            return self._key.sign(content, padding.PKCS1v15(), SHA256())
        r, s = decode_dss_signature(self._key.sign(content, ec.ECDSA(SHA256(), deterministic_signing=True)))
        return r.to_bytes(_ES256_BYTES) + s.to_bytes(_ES256_BYTES)


def check_rsa_key(pem: str, field: str) -> None:
    key = _read_key(pem, field)
    if not isinstance(key, rsa.RSAPrivateKey) or key.key_size < _RSA_BITS:
        raise Invalid(f"an RSA key of {_RSA_BITS:,} bits or more is needed", field=field)


def check_p256_key(pem: str, field: str) -> None:
    if not isinstance(_read_key(pem, field), ec.EllipticCurvePrivateKey):
        raise Invalid("a key of the curve P-256 is needed, as Apple's .p8 file has it", field=field)


def _read_key(pem: str, field: str) -> rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey:
    try:
        # Shells and forms may write a line end as two characters.
        key = load_pem_private_key(pem.replace("\\n", "\n").encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if isinstance(key, rsa.RSAPrivateKey):
        return key
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
        return key
    raise Invalid("a private key in PEM without a password is needed", field=field)


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


TOKEN_URI = "https://oauth2.googleapis.com/token"
RENEWED_AT, ENDED_AT = 0.8, 0.95  # of its life
PAUSE_SECONDS = 5.0  # between two attempts, while the old token is still good
_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_FORM = {"content-type": "application/x-www-form-urlencoded"}
_LIFE_SECONDS = 3_600
_REFUSALS = frozenset({400, 401, 403})


class ServiceAccount(Concealed, frozen=True):
    """The file that Google gives out for an account."""

    client_email: str
    private_key: str
    project_id: str
    token_uri: str = TOKEN_URI
    type: str = "service_account"


class GrantedToken(Concealed, frozen=True):
    access_token: str = ""
    expires_in: float = _LIFE_SECONDS


class GrantRefusal(Struct, frozen=True):
    error: str = ""
    error_description: str = ""


class AccessToken(Struct):
    """An access token. Times are in epoch seconds; `proven` means that the provider has accepted it once."""

    text: str
    renew_at: float
    ends_at: float
    proven: bool = False

    def __repr__(self) -> str:
        return "AccessToken()"


class NoAccess(CarillonError):
    """There is no token; `answer` is the result for the message."""

    def __init__(self, answer: Answer) -> None:
        super().__init__("there is no access token")
        self.answer = answer


def read_service_account(text: str, field: str) -> ServiceAccount:
    """The account in the text of its file. Raises `Invalid`, which shows nothing of it."""
    rule = "the text of a service account's JSON file is needed, with client_email, private_key and project_id"
    try:
        account = msgspec.json.decode(text, type=ServiceAccount)
    except (msgspec.DecodeError, UnicodeError):
        raise Invalid(rule, field=field) from None
    if account.type != "service_account" or not (account.client_email and account.project_id):
        raise Invalid(rule, field=field)
    return account


class AccessTokens:
    def __init__(
        self, account: ServiceAccount, scope: str, outgoing: Outgoing, clock: Clock, call_seconds: float
    ) -> None:
        self._account = account
        self._scope = scope
        self._key = SigningKey(account.private_key, "private_key")
        self._posts = Posts(outgoing, call_seconds)
        self._clock = clock
        self._token: AccessToken | None = None
        self._refusal: Answer | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._pause_until = 0.0

    @property
    def hidden(self) -> tuple[str, ...]:
        return (self._token.text if self._token else "", *self._key.hidden)

    async def get(self) -> AccessToken:
        """Return a token that is good for a while. Raises `NoAccess`."""
        token, now = self._token, self._clock.now().timestamp()
        if token is not None and now < token.renew_at:
            return token
        usable = token is not None and now < token.ends_at
        if self._renewing is None and not (usable and now < self._pause_until):
            self._pause_until = now + PAUSE_SECONDS
            self._renewing = asyncio.create_task(self._renew())
        if usable and token is not None:
            return token
        if self._renewing is not None:
            await asyncio.wait([self._renewing])
        if self._token is None or self._refusal is not None:
            raise NoAccess(self._refusal or NotNow("no access token was granted"))
        return self._token

    def drop(self, token: AccessToken) -> None:
        if token is self._token:
            self._token = None

    async def close(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])

    async def _renew(self) -> None:
        granted: AccessToken | None = None

        def judge(answer: PostedAnswer) -> Answer:
            nonlocal granted
            granted = self._read(answer)
            return self._judge(answer)

        try:
            body = urlencode({"grant_type": _GRANT, "assertion": self._sign()}).encode()
            refusal = await self._posts.post(self._account.token_uri, _FORM, body, lambda: True, judge)
        finally:
            self._renewing = None
        self._token = granted or self._token
        self._refusal = None if granted else _not_taken(refusal)

    def _sign(self) -> str:
        at = int(self._clock.now().timestamp())
        account = self._account
        claims = {
            "iss": account.client_email,
            "scope": self._scope,
            "aud": account.token_uri,
            "iat": at,
            "exp": at + _LIFE_SECONDS,
        }
        return self._key.sign(claims)

    def _read(self, answer: PostedAnswer) -> AccessToken | None:
        known = read_answer(answer, GrantedToken)
        text = known.access_token
        if answer.status != 200 or not (text and text.isascii() and text.isprintable()) or known.expires_in <= 0:
            return None
        now = self._clock.now().timestamp()
        return AccessToken(text, now + RENEWED_AT * known.expires_in, now + ENDED_AT * known.expires_in)

    def _judge(self, answer: PostedAnswer) -> Answer:
        judged = judge_status(answer, "", self._key.hidden)
        if answer.status not in _REFUSALS:
            return judged
        error = read_answer(answer, GrantRefusal)
        words = ": ".join(filter(None, (error.error, error.error_description)))
        return LoginRefused(tell(f"no access token: {words or f'HTTP {answer.status}'}", "", self._key.hidden))


def _not_taken(answer: Answer) -> Answer:
    """The answer to a message that waited for a token, from the answer about the token."""
    match answer:
        case LoginRefused() | CallRefused() | NotNow():
            return answer
        case CallUnanswered(detail=detail):
            return NotNow(f"no access token: {detail}"[:255])
        case _:
            return NotNow("no access token was granted")
