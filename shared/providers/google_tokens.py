"""Access tokens for a Google service account (OAuth 2.0, RFC 7523): a signed token is exchanged for an access token.

One request at a time serves all callers. In the last fifth of a token's life the next one is requested while the old
one is still used; right before its end the old one is no longer used. A failure becomes the `Answer` to the message
that waited: it was certainly not taken.
"""

import asyncio
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from shared.domain.errors import CarillonError, Invalid
from shared.domain.messages.answers import Answer, CallRefused, CallUnanswered, LoginRefused, NotNow
from shared.outgoing import Outgoing, PostedAnswer
from shared.providers.details import tell
from shared.providers.posts import Posts, judge_status, read_answer
from shared.providers.signed_tokens import SigningKey
from shared.runtime.clock import Clock

TOKEN_URI = "https://oauth2.googleapis.com/token"
RENEWED_AT, ENDED_AT = 0.8, 0.95  # of its life
PAUSE_SECONDS = 5.0  # between two attempts, while the old token is still good

_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_FORM = {"content-type": "application/x-www-form-urlencoded"}
_LIFE_SECONDS = 3_600
_REFUSALS = frozenset({400, 401, 403})


class ServiceAccount(Struct, frozen=True):
    """The file that Google gives out for an account."""

    client_email: str
    private_key: str
    project_id: str
    token_uri: str = TOKEN_URI
    type: str = "service_account"

    def __repr__(self) -> str:
        return "ServiceAccount()"


class GrantedToken(Struct, frozen=True):
    """Google's answer to a signed token."""

    access_token: str = ""
    expires_in: float = _LIFE_SECONDS

    def __repr__(self) -> str:
        return "GrantedToken()"


class GrantRefusal(Struct, frozen=True):
    """Google's answer if it grants no token."""

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
    """The access tokens of one account, for one scope."""

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
        """The texts that must not be shown."""
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
        return self._require_token()

    def drop(self, token: AccessToken) -> None:
        if token is self._token:
            self._token = None

    async def close(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])

    def _require_token(self) -> AccessToken:
        if self._token is None or self._refusal is not None:
            raise NoAccess(self._refusal or NotNow("no access token was granted"))
        return self._token

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
