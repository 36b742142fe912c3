"""The callbacks of Twilio, each about one message: a form, signed over the URL that was called.

The signature is the base64 HMAC-SHA1, with the account's token, of the URL and all fields of the form in the order of
their names. Twilio has been seen to sign URLs with and without their port, so both are accepted.
https://www.twilio.com/docs/usage/security
"""

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from shared.domain.messages.answers import Reason
from shared.domain.messages.ledger import MessageState
from shared.providers.callbacks import (
    Callback,
    CallbackNews,
    CallbackRequest,
    CallbackSuppression,
    NotSigned,
    tell_refusal,
)
from shared.providers.details import tell

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
    form = _read_form(request.body)
    shown = request.headers.get(_SIGNATURE, "").encode()
    if not any(hmac.compare_digest(shown, _sign(url, form, token)) for url in _spellings(request.url)):
        raise NotSigned(f"{_SIGNATURE} is not that of this URL and this form under the account's token")
    fields = dict(form)
    news = _news(fields, request.message, token)
    if fields.get("OptOutType") == "STOP":
        return Callback(suppressions=(CallbackSuppression(recipient=fields.get("From", "").removeprefix("whatsapp:")),))
    return Callback(news=(news,) if news else ())


def _read_form(body: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_FIELDS)
    except ValueError:
        raise NotSigned("the body is no form") from None


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
