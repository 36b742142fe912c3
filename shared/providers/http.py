"""Any HTTP server: the template's JSON is the body of a POST. Calls and callbacks are signed by the specification
Standard Webhooks.

`webhook-id` is the message's id, the same on every attempt; `carillon-message` is the id with its attempt, which a
callback may name. A server that drops repetitions by its own header also gets the id there (`idempotencyHeader`);
only then is a repetition safe. 401 means that the server does not know the account; 403 may concern the recipient,
and is a refusal. A JSON answer may name the message by its field `id` or `messageId`.

    {"message": "0190b5a2…~1", "state": "delivered", "at": "2026-12-24T14:00:00Z"}

A callback is one of these, or a list of them. `message` is the value of `carillon-message`, and `id` the server's
own id; one of them is enough. `state` is `sent`, `delivered`, `read` or `failed`. With `failed`, `reason` is one of
Carillon's, and `detail` is free text.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct, field

from shared.core.errors import Invalid
from shared.drivers.http import Outgoing, PostedAnswer
from shared.drivers.http.checks import check_headers
from shared.drivers.http.signing import Forged, check_secret, verify_webhook, webhook_headers
from shared.messages.rules.answers import Answer, CallRefused, Channel, Reason
from shared.messages.rules.ledger import MessageState
from shared.providers import BeforeBytes, Content, Provider, ProviderKind, message_of
from shared.providers.base import (
    Callback,
    CallbackNews,
    CallbackRequest,
    Concealed,
    NotSigned,
    Unreadable,
    read_epoch,
    read_fields,
    read_json,
    tell,
    tell_refusal,
)
from shared.providers.calls import Posts, judge_status, tell_status
from shared.runtime.clock import Clock

_REACHED = {"sent": MessageState.SENT, "delivered": MessageState.DELIVERED, "read": MessageState.READ}


class HttpNews(Struct, frozen=True):
    state: Literal["sent", "delivered", "read", "failed"]
    message: str = ""
    id: str | int = ""
    reason: Reason = Reason.UNDELIVERED
    detail: str = ""
    at: Annotated[datetime, Meta(tz=True)] | None = None


_one = msgspec.json.Decoder(HttpNews)
_many = msgspec.json.Decoder(list[HttpNews])


def read_http_callback(request: CallbackRequest, *secrets: str) -> Callback:
    """Read a request that is signed with one of these secrets. Raises `NotSigned`, or `Unreadable` for another form."""
    try:
        timestamp = verify_webhook(request.headers, request.body, *secrets)
    except Forged as error:
        raise NotSigned(str(error)) from None
    listed = request.body.lstrip().startswith(b"[")
    read = read_json(request.body, _many) if listed else [read_json(request.body, _one)]
    told = tuple(_news(each, request.message, secrets) for each in read)
    return Callback(news=told, at=read_epoch(timestamp))


def _news(told: HttpNews, key: str, secrets: tuple[str, ...]) -> CallbackNews:
    key, provider_id = told.message or key, str(told.id)
    if not (key or provider_id):
        raise Unreadable("the callback names no message: message or id is needed", is_json=True)
    if told.state in _REACHED:
        return CallbackNews(key=key, provider_id=provider_id, state=_REACHED[told.state], at=told.at)
    return tell_refusal(told.reason, tell(told.detail, "", secrets), key=key, provider_id=provider_id, at=told.at)


_ID_CHARACTERS = 255
_NOT_THERE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED})
_KEY_CHARACTERS = 8  # shorter texts are words, not keys


class HttpFields(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    url: str
    headers: dict[str, str] = field(default_factory=dict)
    idempotency_header: str | None = None


class HttpSecret(Concealed, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Secrets that sign calls and callbacks; `authorization` is a header's value. While a signing secret is being
    replaced, calls are signed with both, and either may sign callbacks."""

    signing_secret: str
    old_signing_secret: str | None = None
    authorization: str | None = None

    @property
    def signing_secrets(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.signing_secret, self.old_signing_secret)))


class HttpKind(ProviderKind):
    name = "http"
    channel = Channel.OTHER

    def check(self, fields: Mapping[str, Any], secret: Mapping[str, str]) -> None:
        chosen = read_fields(fields, HttpFields)
        hidden = read_fields(secret, HttpSecret, "secret")
        self._rules.check_url(chosen.url, "url")
        check_headers(chosen.headers, "headers")
        _check_whose_they_are(chosen)
        check_secret(hidden.signing_secret, "secret.signingSecret")
        if hidden.old_signing_secret is not None:
            check_secret(hidden.old_signing_secret, "secret.oldSigningSecret")
        value = hidden.authorization
        if value is not None and not (value.isascii() and value.isprintable() and value.strip()):
            raise Invalid("a header's value is made of printable ASCII characters", field="secret.authorization")

    def repeats_safely(self, fields: Mapping[str, Any]) -> bool:
        return read_fields(fields, HttpFields).idempotency_header is not None

    def open(
        self, fields: Mapping[str, Any], secret: Mapping[str, str], outgoing: Outgoing, credential: str = ""
    ) -> Provider:
        posts = Posts(outgoing, self._rules.call_seconds)
        return HttpProvider(read_fields(fields, HttpFields), read_fields(secret, HttpSecret), posts, self._clock)

    async def read_callback(
        self, fields: Mapping[str, Any], secret: Mapping[str, str], request: CallbackRequest, outgoing: Outgoing
    ) -> Callback:
        return read_http_callback(request, *read_fields(secret, HttpSecret).signing_secrets)


class HttpProvider:
    def __init__(self, fields: HttpFields, secret: HttpSecret, posts: Posts, clock: Clock) -> None:
        self._fields = fields
        self._secret = secret
        self._posts = posts
        self._clock = clock
        self._hidden = tuple(_hidden_texts(fields, secret))

    async def send(self, content: Content, to: str, key: str, before_bytes: BeforeBytes) -> Answer:
        body = msgspec.json.encode(content)

        def judge(answer: PostedAnswer) -> Answer:
            if answer.status == HTTPStatus.FORBIDDEN:
                return CallRefused(Reason.REFUSED, tell_status(answer, to, self._hidden))
            judged = judge_status(answer, to, self._hidden, _provider_id(answer.body))
            is_elsewhere = answer.status in _NOT_THERE and isinstance(judged, CallRefused)
            return msgspec.structs.replace(judged, field="url") if is_elsewhere else judged

        return await self._posts.post(self._fields.url, self._headers(key, body), body, before_bytes, judge)

    async def close(self) -> None: ...

    def _headers(self, key: str, body: bytes) -> dict[str, str]:
        message_id = message_of(key)
        headers = self._fields.headers | {"carillon-message": key}
        if self._fields.idempotency_header is not None:
            headers[self._fields.idempotency_header] = message_id
        if self._secret.authorization is not None:
            headers["authorization"] = self._secret.authorization
        at = int(self._clock.now().timestamp())
        return headers | webhook_headers(message_id, at, body, *self._secret.signing_secrets)


def _check_whose_they_are(chosen: HttpFields) -> None:
    names = {name.lower() for name in chosen.headers}
    if "authorization" in names:
        raise Invalid("this header is a secret: it belongs into secret.authorization", field="headers.authorization")
    if chosen.idempotency_header is None:
        return
    check_headers({chosen.idempotency_header: ""}, "idempotencyHeader")
    if chosen.idempotency_header.lower() in names | {"authorization", "content-type"}:
        raise Invalid("this header has another value already", field="idempotencyHeader")


def _hidden_texts(fields: HttpFields, secret: HttpSecret) -> Iterator[str]:
    """Texts that a server may repeat and that must not be shown: headers and paths often hold keys."""
    yield from secret.signing_secrets
    yield from (part for part in (secret.authorization or "").split() if len(part) >= _KEY_CHARACTERS)
    parts = urlsplit(fields.url)
    yield from (text for text in (*fields.headers.values(), parts.path, parts.query) if len(text) >= _KEY_CHARACTERS)


def _provider_id(body: bytes) -> str:
    try:
        read = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    named = (read.get("id") or read.get("messageId")) if isinstance(read, dict) else None
    usable = isinstance(named, str | int) and not isinstance(named, bool)
    return str(named)[:_ID_CHARACTERS] if usable else ""
