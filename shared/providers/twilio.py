"""SMS and WhatsApp by Twilio's API of 2010-04-01, or a server that speaks like it: one form per message.

A sender `whatsapp:+…` sends by WhatsApp, and Twilio wants the same scheme before the recipient. More than 24 hours
after a recipient has written, WhatsApp takes only approved templates: `ContentSid`, with `ContentVariables` as JSON.
https://www.twilio.com/docs/content/send-templates-created-with-the-content-template-builder

Callbacks come to a URL with the message and attempt, so that a callback that overtakes the answer is known. Twilio
has no idempotency key. Its error codes say more than the status; unknown codes are plain refusals. A callback's
signature is the base64 HMAC-SHA1, with the account's token, of the URL and all fields of the form in the order of
their names. Twilio has been seen to sign URLs with and without their port, so both are accepted.
https://www.twilio.com/docs/usage/security
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec
from msgspec import Struct, field

from shared.core.errors import Invalid
from shared.drivers.http import Outgoing, PostedAnswer
from shared.messages.rules.answers import Answer, CallRefused, Channel, NotNow, Reason
from shared.messages.rules.contents import SMS_CHARACTERS, SMS_RULE, variables_flaw
from shared.messages.rules.ledger import MessageState
from shared.providers import BeforeBytes, Content, Provider, ProviderKind, ProviderRules
from shared.providers.base import (
    Callback,
    CallbackNews,
    CallbackRequest,
    CallbackSuppression,
    Concealed,
    NotSigned,
    read_fields,
    tell,
    tell_refusal,
)
from shared.providers.calls import Posts, judge_status, read_answer

_SIGNATURE = "x-twilio-signature"
_FIELDS = 200
_PORTS = {"http": 80, "https": 443}
_REACHED = {"sent": MessageState.SENT, "delivered": MessageState.DELIVERED, "read": MessageState.READ}
_LOST = frozenset({"undelivered", "failed", "canceled"})
# https://www.twilio.com/docs/api/errors: the codes that say more than "refused" or "not delivered".
REASONS = {
    "21211": Reason.MALFORMED,  # no valid number
    "21217": Reason.MALFORMED,  # seems to be no valid number
    "21401": Reason.MALFORMED,
    "21421": Reason.MALFORMED,
    "21604": Reason.MALFORMED,  # no number at all
    "21610": Reason.UNSUBSCRIBED,  # STOP
    "21614": Reason.MALFORMED,  # no mobile number
    "30003": Reason.SOFT_BOUNCE,  # the handset is switched off or out of reach
    "30004": Reason.REFUSED,  # blocked
    "30005": Reason.UNREGISTERED,  # the number is not assigned
    "30006": Reason.UNDELIVERED,  # a landline, or a carrier out of reach
    "30007": Reason.REFUSED,  # filtered
    "30034": Reason.REFUSED,  # from a number that is not registered
    "30410": Reason.SOFT_BOUNCE,  # the carrier took too long
    "63003": Reason.UNREGISTERED,  # not a user of the channel
    "63005": Reason.REFUSED,  # the channel does not take this content
    "63013": Reason.REFUSED,  # against the channel's policy
    "63014": Reason.UNSUBSCRIBED,  # the recipient has blocked the sender or opted out
    "63016": Reason.REFUSED,  # free text outside the window of a conversation
    "63021": Reason.REFUSED,  # the channel does not know this content
    "63024": Reason.UNREGISTERED,  # no recipient of WhatsApp
}


def read_twilio_callback(request: CallbackRequest, token: str) -> Callback:
    """Read a signed request about one message; it has no time. A message from a recipient counts if Twilio says that
    it opts out. Raises `NotSigned`."""
    try:
        form = parse_qsl(request.body.decode(), keep_blank_values=True, max_num_fields=_FIELDS)
    except ValueError:
        raise NotSigned("the body is no form") from None
    shown = request.headers.get(_SIGNATURE, "").encode()
    if not any(hmac.compare_digest(shown, _sign(url, form, token)) for url in _spellings(request.url)):
        raise NotSigned(f"{_SIGNATURE} is not that of this URL and this form under the account's token")
    fields = dict(form)
    news = _news(fields, request.message, token)
    if fields.get("OptOutType") == "STOP":
        return Callback(suppressions=(CallbackSuppression(recipient=fields.get("From", "").removeprefix("whatsapp:")),))
    return Callback(news=(news,) if news else ())


def _sign(url: str, form: Iterable[tuple[str, str]], token: str) -> bytes:
    signed = url + "".join(f"{name}{value}" for name, value in sorted(set(form)))
    return base64.b64encode(hmac.digest(token.encode(), signed.encode(), hashlib.sha1))


def _spellings(url: str) -> list[str]:
    parts = urlsplit(url)
    host = parts.netloc.removesuffix(f":{parts.port}") if parts.port else parts.netloc
    port = parts.port or _PORTS.get(parts.scheme)
    return [urlunsplit(parts._replace(netloc=netloc)) for netloc in (host, f"{host}:{port}")]


def _news(fields: Mapping[str, str], key: str, token: str) -> CallbackNews | None:
    """`None` if the state does not change, as when the message is queued."""
    status = fields.get("MessageStatus", "").lower()
    provider_id = fields.get("MessageSid", "")
    if status in _REACHED:
        return CallbackNews(key=key, provider_id=provider_id, state=_REACHED[status])
    if status not in _LOST:
        return None
    code = fields.get("ErrorCode", "")
    reason = REASONS.get(code, Reason.OTHER if status == "canceled" else Reason.UNDELIVERED)
    words = f"{code}: {fields.get('ErrorMessage', '')}" if code else status
    detail = tell(words.removesuffix(": "), fields.get("To", ""), (token,))
    return tell_refusal(reason, detail, key=key, provider_id=provider_id)


_ACCOUNT = re.compile(r"AC[0-9a-fA-F]{32}")
_SERVICE = re.compile(r"MG[0-9a-fA-F]{32}")
_SENDER = re.compile(r"\+[1-9][0-9]{6,14}|[0-9]{3,8}|(?=.*[A-Za-z])[A-Za-z0-9 &_+-]{1,11}|whatsapp:\+[0-9]{7,15}")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_CONTENT = re.compile(r"HX[0-9a-fA-F]{32}")
_VARIABLE = re.compile(r"\S{1,16}")
_VARIABLES = 100
_WHATSAPP = "whatsapp:"
_LOOPBACK = re.compile(r"https?://(127\.|localhost\b|\[::1\])")  # Twilio refuses a message with such a callback URL
# https://www.twilio.com/docs/api/errors: those of a request for one message, and of a channel such as WhatsApp.
_OF_THE_MESSAGE = frozenset({*range(21_000, 22_000), *range(63_000, 64_000)})
_NO_ACCOUNT = 20_404
_OWN_FIELDS = dict.fromkeys((21_212, 21_603, 21_606, 21_659, 21_660, 63_007), "from") | dict.fromkeys(
    (21_701, 21_703, 21_704, 21_705), "messagingServiceSid"
)
_TOO_FAST = frozenset({21_611, 63_018})  # the sender's queue is full; more than the channel takes


class TwilioFields(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """An account's own fields: `from` or a messaging service. `api_url` may name another region, or a server that
    speaks like Twilio."""

    account_sid: str
    sender: str | None = field(default=None, name="from")
    messaging_service_sid: str | None = None
    api_url: str = "https://api.twilio.com"


class TwilioSecret(Concealed, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The token logs the account in, and signs Twilio's callbacks."""

    auth_token: str


class TwilioContent(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The content of a template: a text, or a content template of Twilio's with its variables."""

    text: str = ""
    content_sid: str = ""
    content_variables: dict[str, str] = {}


class TwilioError(Struct, frozen=True):
    code: int | None = None
    message: str = ""


class TwilioMessage(Struct, frozen=True):
    sid: str = ""


class TwilioKind(ProviderKind):
    name = "twilio"
    channel = Channel.SMS

    def check(self, fields: Mapping[str, Any], secret: Mapping[str, str]) -> None:
        chosen = read_fields(fields, TwilioFields)
        hidden = read_fields(secret, TwilioSecret, "secret")
        if not _ACCOUNT.fullmatch(chosen.account_sid):
            raise Invalid("an account's SID is AC and 32 hexadecimal digits", field="accountSid")
        _check_sender(chosen)
        self._rules.check_url(chosen.api_url, "apiUrl")
        if not _TOKEN.fullmatch(hidden.auth_token):
            raise Invalid("a token is made of printable ASCII characters", field="secret.authToken")

    def check_content(self, body: Mapping[str, Any]) -> None:
        content = read_fields(body, TwilioContent)
        if content.content_sid:
            _check_content_template(content)
        elif content.content_variables:
            raise Invalid("contentVariables needs contentSid, the content template that it fills", field="contentSid")
        elif not content.text.strip() or len(content.text) > SMS_CHARACTERS:
            raise Invalid(SMS_RULE, field="text")

    def open(
        self, fields: Mapping[str, Any], secret: Mapping[str, str], outgoing: Outgoing, credential: str = ""
    ) -> Provider:
        posts = Posts(outgoing, self._rules.call_seconds)
        chosen, hidden = read_fields(fields, TwilioFields), read_fields(secret, TwilioSecret)
        return TwilioProvider(chosen, hidden, posts, self._rules, credential)

    async def read_callback(
        self, fields: Mapping[str, Any], secret: Mapping[str, str], request: CallbackRequest, outgoing: Outgoing
    ) -> Callback:
        return read_twilio_callback(request, read_fields(secret, TwilioSecret).auth_token)


class TwilioProvider:
    def __init__(
        self, fields: TwilioFields, secret: TwilioSecret, posts: Posts, rules: ProviderRules, credential: str
    ) -> None:
        self._url = f"{fields.api_url.rstrip('/')}/2010-04-01/Accounts/{fields.account_sid}/Messages.json"
        login = base64.b64encode(f"{fields.account_sid}:{secret.auth_token}".encode()).decode()
        self._headers = {"authorization": f"Basic {login}", "content-type": "application/x-www-form-urlencoded"}
        service = {"MessagingServiceSid": fields.messaging_service_sid or ""}
        self._sender = service if fields.sender is None else {"From": fields.sender}
        self._scheme = _WHATSAPP if (fields.sender or "").startswith(_WHATSAPP) else ""
        self._hidden = (secret.auth_token, login)
        self._posts = posts
        self._rules = rules
        self._credential = credential

    async def send(self, content: Content, to: str, key: str, before_bytes: BeforeBytes) -> Answer:
        number = to.rpartition(":")[2]  # a test message's recipient is as the user wrote it
        form = {"To": f"{self._scheme}{number}", **_say(content), **self._sender}
        callback = self._rules.callback_url(self._credential, key)
        if callback is not None and not _LOOPBACK.match(callback):
            form["StatusCallback"] = callback
        judge = partial(_judge, to=to, hidden=self._hidden)
        return await self._posts.post(self._url, self._headers, urlencode(form).encode(), before_bytes, judge)

    async def close(self) -> None: ...


def _check_sender(chosen: TwilioFields) -> None:
    if (chosen.sender is None) == (chosen.messaging_service_sid is None):
        raise Invalid("a sender is needed: either from or messagingServiceSid", field="from")
    if chosen.sender is not None and not _SENDER.fullmatch(chosen.sender):
        rule = "a number as +6591234567, a short code, a name of 1 to 11 letters, or whatsapp:+6591234567"
        raise Invalid(f"a sender is {rule}", field="from")
    if chosen.messaging_service_sid is not None and not _SERVICE.fullmatch(chosen.messaging_service_sid):
        raise Invalid("a messaging service's SID is MG and 32 hexadecimal digits", field="messagingServiceSid")


def _check_content_template(content: TwilioContent) -> None:
    if content.text:
        raise Invalid("a message has either text or contentSid", field="text")
    if not _CONTENT.fullmatch(content.content_sid):
        raise Invalid("a content template's SID is HX and 32 hexadecimal digits", field="contentSid")
    if len(content.content_variables) > _VARIABLES:
        raise Invalid(f"a content template has at most {_VARIABLES} variables", field="contentVariables")
    if not all(map(_VARIABLE.fullmatch, content.content_variables)):
        raise Invalid("a variable's name has 1 to 16 characters and no blank", field="contentVariables")
    if flaw := variables_flaw(content.content_variables):
        raise Invalid(flaw, field="contentVariables")


def _say(content: Content) -> dict[str, str]:
    sid, variables = content.get("contentSid"), content.get("contentVariables")
    if not sid:
        return {"Body": str(content.get("text", ""))}
    filled = {"ContentVariables": msgspec.json.encode(variables).decode()} if variables else {}
    return {"ContentSid": str(sid), **filled}


def _judge(answer: PostedAnswer, to: str, hidden: tuple[str, ...]) -> Answer:
    error = read_answer(answer, TwilioError)
    if answer.status < 400 or answer.status == HTTPStatus.TOO_MANY_REQUESTS or error.code not in _OF_THE_MESSAGE:
        judged = judge_status(answer, to, hidden, read_answer(answer, TwilioMessage).sid)
        is_unknown = error.code == _NO_ACCOUNT and isinstance(judged, CallRefused)
        return msgspec.structs.replace(judged, field="accountSid") if is_unknown else judged
    detail = tell(f"{error.code}: {error.message}", to, hidden)
    if error.code in _TOO_FAST:
        return NotNow(detail, too_fast=True)
    return CallRefused(REASONS.get(str(error.code), Reason.REFUSED), detail, _OWN_FIELDS.get(error.code or 0, ""))
