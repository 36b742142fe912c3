"""Pushes by Apple's Push Notification service, over HTTP/2: one POST per message, to a device token.

The template's body is the payload. The message's id is the collapse id, so a repetition replaces the first push on the
device. APNs wants a signed token that is used for at least 20 minutes and at most an hour. So all processes sign the
same claims, anew in every slice of 40 minutes.
"""

import re
import ssl
from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct

from shared.core.errors import Invalid
from shared.drivers.http import Outgoing, PostedAnswer
from shared.drivers.http.guard import Guard
from shared.messages.rules.answers import Answer, CallAccepted, CallRefused, Channel, NotNow, Reason
from shared.messages.rules.contents import PAYLOAD_BYTES, VOIP_PAYLOAD_BYTES
from shared.messages.rules.recipients import APNS_DEVICE
from shared.providers import BeforeBytes, Content, Provider, ProviderKind, ProviderRules, collapse_id
from shared.providers.base import Concealed, read_fields, tell
from shared.providers.calls import Posts, judge_status, read_answer, text_of
from shared.providers.http2 import Http2Poster, target_of, trusting_context
from shared.providers.tokens import SigningKey, check_p256_key
from shared.runtime.clock import Clock

URL = "https://api.push.apple.com"
SANDBOX_URL = "https://api.sandbox.push.apple.com"

TOKEN_SECONDS = 2_400

_IDENTIFIER = re.compile(r"[A-Z0-9]{10}")
_TOPIC = re.compile(r"[A-Za-z0-9.-]{1,255}")
_EXPIRATION_SECONDS = 2_592_000
_OF_THE_BACKGROUND = frozenset({"alert", "badge", "sound"})

# Without `BadDeviceToken`: APNs also says that about a valid token in the wrong environment.
_GONE = frozenset({"Unregistered", "ExpiredToken"})
_TOO_FAST = frozenset({"TooManyProviderTokenUpdates"})
# Too many requests "were made consecutively to the same device token": other devices may go on.
_NOT_NOW = frozenset({"TooManyRequests", "ServiceUnavailable", "Shutdown", "IdleTimeout"})
_OF_THE_TOPIC = frozenset({"BadTopic", "MissingTopic", "TopicDisallowed"})
_OF_THE_DEVICE = "Forbidden"  # a 403, but not about Carillon's token


class ApnsPushType(StrEnum):
    ALERT = "alert"
    BACKGROUND = "background"
    LOCATION = "location"
    VOIP = "voip"
    COMPLICATION = "complication"
    FILEPROVIDER = "fileprovider"
    MDM = "mdm"
    LIVEACTIVITY = "liveactivity"
    PUSHTOTALK = "pushtotalk"
    WIDGETS = "widgets"
    CONTROLS = "controls"


class ApnsFields(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """An account's own fields. Without a `push_type`, a payload that shows nothing is `background`, any other `alert`.
    `api_url` may name a server that speaks like APNs."""

    team_id: str
    key_id: str
    topic: str
    sandbox: bool = False
    push_type: ApnsPushType | None = None
    priority: int | None = None
    expiration_seconds: int | None = None
    api_url: str | None = None

    @property
    def url(self) -> str:
        chosen = self.api_url or (SANDBOX_URL if self.sandbox else URL)
        return chosen.rstrip("/")


class ApnsSecret(Concealed, frozen=True, forbid_unknown_fields=True):
    """The text of the .p8 file: the key of `key_id`."""

    key: str


class ApnsError(Struct, frozen=True):
    reason: str = ""


class ApnsKind(ProviderKind):
    name = "apns"
    channel = Channel.PUSH

    def __init__(self, rules: ProviderRules, clock: Clock | None = None, trust: ssl.SSLContext | None = None) -> None:
        super().__init__(rules, clock)
        self._trust = trust

    def check(self, fields: Mapping[str, Any], secret: Mapping[str, str]) -> None:
        chosen = read_fields(fields, ApnsFields)
        hidden = read_fields(secret, ApnsSecret, "secret")
        for name, identifier in (("teamId", chosen.team_id), ("keyId", chosen.key_id)):
            if not _IDENTIFIER.fullmatch(identifier):
                raise Invalid("it is 10 capital letters and digits", field=name)
        if not _TOPIC.fullmatch(chosen.topic):
            raise Invalid("a topic is the id of an app, as com.example.app", field="topic")
        _check_delivery(chosen)
        if chosen.api_url is not None:
            self._rules.check_url(chosen.api_url, "apiUrl")
        check_p256_key(hidden.key, "secret.key")

    def check_content(self, body: Mapping[str, Any]) -> None:
        if not isinstance(body.get("aps"), dict):
            raise Invalid("a payload has a dictionary aps, beside what is the app's own", field="aps")

    def open(
        self, fields: Mapping[str, Any], secret: Mapping[str, str], outgoing: Outgoing, credential: str = ""
    ) -> Provider:
        chosen = read_fields(fields, ApnsFields)
        # Reading the system's certificates takes long, so it is done once for all accounts.
        self._trust = self._trust or trusting_context()
        poster = Http2Poster(target_of(chosen.url), Guard(self._rules.allowed_networks), self._trust)
        tokens = ProviderTokens(chosen, SigningKey(read_fields(secret, ApnsSecret).key, "secret.key"), self._clock)
        return ApnsProvider(chosen, tokens, poster, self._rules.call_seconds, self._clock)


class ProviderTokens:
    """The signed token of an account; all processes sign the same one."""

    def __init__(self, fields: ApnsFields, key: SigningKey, clock: Clock) -> None:
        self._fields = fields
        self._key = key
        self._clock = clock
        self._slice = -1
        self._token = ""

    @property
    def current(self) -> str:
        slice_ = int(self._clock.now().timestamp()) // TOKEN_SECONDS
        if slice_ != self._slice:
            claims = {"iss": self._fields.team_id, "iat": slice_ * TOKEN_SECONDS}
            self._token = self._key.sign(claims, kid=self._fields.key_id)
            self._slice = slice_
        return self._token

    @property
    def hidden(self) -> tuple[str, ...]:
        return (self._token, *self._token.split("."), *self._key.hidden)


class ApnsProvider:
    def __init__(
        self, fields: ApnsFields, tokens: ProviderTokens, poster: Http2Poster, call_seconds: float, clock: Clock
    ) -> None:
        self._fields = fields
        self._tokens = tokens
        self._poster = poster
        self._posts = Posts(poster, call_seconds)
        self._clock = clock

    async def send(self, content: Content, to: str, key: str, before_bytes: BeforeBytes) -> Answer:
        if not APNS_DEVICE.fullmatch(to):
            return CallRefused(Reason.MALFORMED, "a device's token is made of 8 to 512 hexadecimal digits")
        payload = msgspec.json.encode(content)
        push_type = self._fields.push_type or _push_type_of(content)
        most = VOIP_PAYLOAD_BYTES if push_type is ApnsPushType.VOIP else PAYLOAD_BYTES
        if len(payload) > most:
            return CallRefused(Reason.REFUSED, f"the payload has {len(payload):,} bytes; at most {most:,} are allowed")
        headers = self._headers(push_type, key)
        judge = partial(_judge, to=to, hidden=self._tokens.hidden)
        return await self._posts.post(f"{self._fields.url}/3/device/{to}", headers, payload, before_bytes, judge)

    async def close(self) -> None:
        await self._poster.close()

    def _headers(self, push_type: ApnsPushType, key: str) -> dict[str, str]:
        headers = {
            "authorization": f"bearer {self._tokens.current}",
            "content-type": "application/json",
            "apns-topic": self._fields.topic,
            "apns-push-type": push_type.value,
            "apns-collapse-id": collapse_id(key),
        }
        priority = self._fields.priority
        if push_type is ApnsPushType.BACKGROUND and priority in {None, 10}:
            priority = 5  # APNs refuses the usual priority for a background push
        if priority is not None:
            headers["apns-priority"] = str(priority)
        if (seconds := self._fields.expiration_seconds) is not None:
            headers["apns-expiration"] = str(int(self._clock.now().timestamp()) + seconds if seconds else 0)
        return headers


def _check_delivery(chosen: ApnsFields) -> None:
    if chosen.priority not in {None, 1, 5, 10}:
        raise Invalid("a priority is 1, 5 or 10", field="priority")
    if chosen.push_type is ApnsPushType.BACKGROUND and chosen.priority == 10:
        raise Invalid("a push that shows nothing has the priority 5 or 1", field="priority")
    if chosen.expiration_seconds is not None and not 0 <= chosen.expiration_seconds <= _EXPIRATION_SECONDS:
        raise Invalid(f"a number from 0 to {_EXPIRATION_SECONDS:,} is needed", field="expirationSeconds")


def _push_type_of(content: Content) -> ApnsPushType:
    aps = content.get("aps")
    known = aps if isinstance(aps, dict) else {}
    silent = known.get("content-available") == 1 and not _OF_THE_BACKGROUND & known.keys()
    return ApnsPushType.BACKGROUND if silent else ApnsPushType.ALERT


def _judge(answer: PostedAnswer, to: str, hidden: tuple[str, ...]) -> Answer:
    judged = judge_status(answer, to, hidden, answer.headers.get("apns-id", ""))
    if isinstance(judged, CallAccepted):
        return judged
    reason = read_answer(answer, ApnsError).reason
    detail = tell(f"HTTP {answer.status}: {reason or text_of(answer)}".rstrip(": "), to, hidden)
    if reason in _GONE or answer.status == HTTPStatus.GONE:
        return CallRefused(Reason.UNREGISTERED, detail)
    if reason in _TOO_FAST | _NOT_NOW:
        retry_after = judged.retry_after if isinstance(judged, NotNow) else None
        is_away = answer.status == HTTPStatus.SERVICE_UNAVAILABLE and retry_after is not None
        return NotNow(detail, too_fast=reason in _TOO_FAST or is_away, retry_after=retry_after)
    if reason == _OF_THE_DEVICE:
        return CallRefused(Reason.REFUSED, detail)
    if reason in _OF_THE_TOPIC and isinstance(judged, CallRefused):
        return msgspec.structs.replace(judged, detail=detail, field="topic")
    return msgspec.structs.replace(judged, detail=detail)
