"""Pushes by Firebase Cloud Messaging, HTTP v1: one POST per message, to the registration token of an app's instance.

The template's body is the message without its target. If it has a notification, the message's id becomes its tag on
Android and its collapse id on Apple's devices, unless the template has its own: so a repetition replaces the first. A
`collapse_key` does not work, because a device keeps only four. FCM has no idempotency key.
"""

import asyncio
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct, field

from shared.core.errors import Invalid
from shared.drivers.http import Outgoing, PostedAnswer
from shared.messages.rules.answers import Answer, CallAccepted, CallRefused, CallUnanswered, Channel, NotNow, Reason
from shared.providers import BeforeBytes, Content, Provider, ProviderKind, collapse_id, message_of
from shared.providers.base import Concealed, read_fields, tell
from shared.providers.calls import Posts, judge_status, read_answer
from shared.providers.tokens import (
    AccessToken,
    AccessTokens,
    NoAccess,
    ServiceAccount,
    check_rsa_key,
    read_service_account,
)

SCOPE = "https://www.googleapis.com/auth/firebase.messaging"

_SECRET = "secret.serviceAccount"
_TARGETS = ("token", "topic", "condition")
# https://firebase.google.com/docs/reference/fcm/rest/v1/projects.messages#Message
_RESERVED = frozenset({"from", "message_type"})
_RESERVED_STARTS = ("google", "gcm")
_PARTS = frozenset({"notification", "data", "android", "apns", "webpush"})
_ALLOWED = _PARTS | {"fcm_options", "fcmOptions"}
_UNAUTHENTICATED = 401
_OF_THE_TOKEN = "registration token"
_OF_A_DEVICE = "device"


class FcmFields(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """An account's own fields. `api_url` may name a private endpoint, or a server that speaks like FCM."""

    api_url: str = "https://fcm.googleapis.com"


class FcmSecret(Concealed, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The text of a service account's JSON file."""

    service_account: str


class FcmViolation(Struct, frozen=True):
    field: str = ""
    description: str = ""


class FcmQuota(Struct, frozen=True):
    subject: str = ""
    description: str = ""


class FcmErrorDetail(Struct, frozen=True, rename="camel"):
    error_code: str = ""
    field_violations: list[FcmViolation] = field(default_factory=list)
    violations: list[FcmQuota] = field(default_factory=list)


class FcmError(Struct, frozen=True):
    """Why FCM did not take a message; `status` is the common code of Google's services."""

    message: str = ""
    status: str = ""
    details: list[FcmErrorDetail] = field(default_factory=list)

    @property
    def code(self) -> str:
        return next((detail.error_code for detail in self.details if detail.error_code), self.status)

    @property
    def blames_the_token(self) -> bool:
        fields = [violation.field for detail in self.details for violation in detail.field_violations]
        return "message.token" in fields or _OF_THE_TOKEN in self.message

    @property
    def is_of_one_device(self) -> bool:
        """Whether a limit of one device was passed, and none of the project."""
        passed = [quota for detail in self.details for quota in detail.violations]
        words = [self.message, *(f"{quota.subject} {quota.description}" for quota in passed)]
        return any(_OF_A_DEVICE in text.lower() for text in words)


class FcmAnswer(Struct, frozen=True):
    name: str = ""
    error: FcmError | None = None


class FcmKind(ProviderKind):
    name = "fcm"
    channel = Channel.PUSH

    def check(self, fields: Mapping[str, Any], secret: Mapping[str, str]) -> None:
        chosen = read_fields(fields, FcmFields)
        account = read_service_account(read_fields(secret, FcmSecret, "secret").service_account, _SECRET)
        self._rules.check_url(chosen.api_url, "apiUrl")
        try:
            self._rules.check_url(account.token_uri, _SECRET)
        except Invalid as error:
            raise Invalid(f"token_uri: {error.reason}", field=_SECRET) from None
        check_rsa_key(account.private_key, _SECRET)

    def check_content(self, body: Mapping[str, Any]) -> None:
        for name in body:
            if name in _TARGETS:
                raise Invalid("whom a message goes to is not the template's to say", field=name)
            if name not in _ALLOWED:
                raise Invalid(f"a message has {', '.join(sorted(_ALLOWED))}", field=name)
        if not _PARTS & body.keys():
            raise Invalid("a message has a notification, or data, or both", field="notification")
        for name in _PARTS & body.keys():
            if not isinstance(body[name], dict):
                raise Invalid("a JSON object is needed", field=name)
        for path, data in _data_of(body):
            _check_data(data, path)

    def open(
        self, fields: Mapping[str, Any], secret: Mapping[str, str], outgoing: Outgoing, credential: str = ""
    ) -> Provider:
        account = read_service_account(read_fields(secret, FcmSecret).service_account, _SECRET)
        seconds = self._rules.call_seconds
        tokens = AccessTokens(account, SCOPE, outgoing, self._clock, seconds)
        return FcmProvider(read_fields(fields, FcmFields), account, tokens, outgoing, seconds)


class FcmProvider:
    def __init__(
        self,
        fields: FcmFields,
        account: ServiceAccount,
        tokens: AccessTokens,
        outgoing: Outgoing,
        call_seconds: float,
    ) -> None:
        self._url = f"{fields.api_url.rstrip('/')}/v1/projects/{quote(account.project_id, safe='')}/messages:send"
        self._tokens = tokens
        self._outgoing = outgoing
        self._call_seconds = call_seconds

    async def send(self, content: Content, to: str, key: str, before_bytes: BeforeBytes) -> Answer:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._call_seconds
        try:
            async with asyncio.timeout_at(deadline):
                token = await self._tokens.get()
        except NoAccess as none:
            return none.answer
        except TimeoutError:
            return NotNow(f"no access token within {self._call_seconds:g} s")
        body = msgspec.json.encode({"message": _message(content, to, key)})
        judge = partial(self._judge, to=to, token=token)
        posts = Posts(self._outgoing, deadline - loop.time())
        return await posts.post(self._url, {"authorization": f"Bearer {token.text}"}, body, before_bytes, judge)

    async def close(self) -> None:
        await self._tokens.close()

    def _judge(self, answer: PostedAnswer, to: str, token: AccessToken) -> Answer:
        hidden = (token.text, *self._tokens.hidden)
        judged = _judge(answer, to, hidden)
        error = read_answer(answer, FcmAnswer).error
        if answer.status != _UNAUTHENTICATED or isinstance(judged, CallRefused):
            token.proven = True
            return judged
        self._tokens.drop(token)
        # A token that worked before has ended early; a token that never worked will not.
        detail = tell(f"HTTP 401: {error.message if error else ''}".rstrip(": "), to, hidden)
        return NotNow(detail) if token.proven else judged


def _message(content: Content, to: str, key: str) -> dict[str, Any]:
    """The message for FCM: with its target, and with ids that let a repetition replace it."""
    message = {**content, "token": to}
    android, apns = _object(content, "android"), _object(content, "apns")
    shown = _object(android, "notification")
    if content.get("notification") or shown:
        message["android"] = android | {"notification": {"tag": message_of(key)} | shown}
        message["apns"] = apns | {"headers": {"apns-collapse-id": collapse_id(key)} | _object(apns, "headers")}
    return message


def _data_of(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The data of a message, and those of the platforms, which replace it there."""
    for path, holder in (("", body), *((f"{part}.", _object(body, part)) for part in ("android", "webpush"))):
        if "data" in holder:
            yield f"{path}data", holder["data"]


def _check_data(data: Any, path: str) -> None:
    if not isinstance(data, dict):
        raise Invalid("a JSON object is needed", field=path)
    for name, value in data.items():
        if name in _RESERVED or name.startswith(_RESERVED_STARTS):
            rule = "FCM keeps this name for itself: from, message_type, google… and gcm…"
            raise Invalid(rule, field=f"{path}.{name}")
        if not isinstance(value, str):
            raise Invalid("all data are texts", field=f"{path}.{name}")


def _object(of: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = of.get(name)
    return found if isinstance(found, dict) else {}


def _judge(answer: PostedAnswer, to: str, hidden: tuple[str, ...]) -> Answer:
    read = read_answer(answer, FcmAnswer)
    judged = judge_status(answer, to, hidden, read.name.rpartition("/")[2])
    error = read.error
    if isinstance(judged, CallAccepted) or error is None:
        return judged
    detail = tell(f"{error.code}: {error.message}", to, hidden)
    match error.code:
        case "UNREGISTERED":
            return CallRefused(Reason.UNREGISTERED, detail)
        case "INVALID_ARGUMENT":
            return CallRefused(Reason.MALFORMED if error.blames_the_token else Reason.REFUSED, detail)
        # Without an FCM code, the missing thing may be the project: the token is not at fault.
        case "NOT_FOUND":
            return CallRefused(Reason.REFUSED, detail)
        # The token belongs to another project, or Apple's key is missing there: the login is not at fault.
        case "SENDER_ID_MISMATCH" | "THIRD_PARTY_AUTH_ERROR":
            return CallRefused(Reason.REFUSED, detail)
        case "QUOTA_EXCEEDED" | "RESOURCE_EXHAUSTED":
            return NotNow(detail, too_fast=not error.is_of_one_device, retry_after=_patience(judged))
        case "UNAVAILABLE":
            patience = _patience(judged)
            return NotNow(detail, too_fast=patience is not None, retry_after=patience)
        case "INTERNAL":
            return CallUnanswered(detail)
        case _:
            return msgspec.structs.replace(judged, detail=detail)


def _patience(judged: Answer) -> timedelta | None:
    return judged.retry_after if isinstance(judged, NotNow) else None
