"""Mail by Amazon SES, over its SMTP interface: the kind `smtp` with SES's own headers and replies.

Carillon's key is in a header and in a message tag, so that any event of SES names it. A tag's value may only contain
letters, digits, `_` and `-`, hence `ses_tags`. SES says some things only in words: an account that may not send at all
counts as a refused login, because no message passes until an operator acts.
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from shared.domain.errors import Invalid
from shared.domain.messages.answers import Answer, CallRefused, LoginRefused, Reason
from shared.outgoing import Outgoing
from shared.providers import ProviderRules
from shared.providers.callbacks import Callback, CallbackRequest
from shared.providers.fields import read_fields
from shared.providers.ses_events import read_ses_callback
from shared.providers.ses_tags import TAG, tag_of
from shared.providers.smtp import SmtpFields, SmtpKind, SmtpManner, SmtpReply, judge_reply, name_message
from shared.providers.sns import DOMAINS, SnsCertificates, sns_fetch

_TAGS_HEADER = "X-SES-MESSAGE-TAGS"
_SET_HEADER = "X-SES-CONFIGURATION-SET"

_SET_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TOPIC = re.compile(rf"arn:({'|'.join(DOMAINS)}):sns:[a-z0-9-]+:[0-9]{{12}}:[A-Za-z0-9_-]{{1,256}}(\.fifo)?")
_BARRED = re.compile(
    r"access denied|sending (suspended|paused)|sending is (suspended|paused)|account is (suspended|paused|not active)",
    re.IGNORECASE,
)
_NO_ADDRESS = re.compile(
    r"invalid (rcpt to|address)|illegal address|missing final|domain (contains|starts)", re.IGNORECASE
)


class SesFields(SmtpFields, frozen=True):
    """An account's own fields. `host` is the SMTP endpoint of a region; events come only from `topic_arns`."""

    configuration_set: str | None = None
    topic_arns: tuple[str, ...] = ()


class SesKind(SmtpKind):
    """See the module."""

    name: ClassVar[str] = "ses"
    shape: ClassVar[type[SmtpFields]] = SesFields

    def __init__(self, rules: ProviderRules) -> None:
        super().__init__(rules)
        self._certificates = SnsCertificates()

    def check(self, fields: Mapping[str, Any], secret: Mapping[str, str]) -> None:
        super().check(fields, secret)
        chosen = read_fields(fields, SesFields)
        if not chosen.user:
            raise Invalid("SES takes no mail without a login", field="user")
        if chosen.configuration_set is not None and not _SET_NAME.fullmatch(chosen.configuration_set):
            rule = "the name of a configuration set is 1 to 64 letters, digits, _ and -"
            raise Invalid(rule, field="configurationSet")
        for index, topic in enumerate(chosen.topic_arns):
            if not _TOPIC.fullmatch(topic):
                rule = "a topic is named as in arn:aws:sns:eu-west-1:123456789012:mails"
                raise Invalid(rule, field=f"topicArns[{index}]")

    def manner(self, fields: Mapping[str, Any]) -> SmtpManner:
        chosen = read_fields(fields, SesFields)
        fixed = {_SET_HEADER: chosen.configuration_set} if chosen.configuration_set is not None else {}

        def headers(key: str) -> dict[str, str]:
            return {**name_message(key), _TAGS_HEADER: f"{TAG}={tag_of(key)}", **fixed}

        return SmtpManner(headers=headers, judge=_judge)

    async def read_callback(
        self, fields: Mapping[str, Any], secret: Mapping[str, str], request: CallbackRequest, outgoing: Outgoing
    ) -> Callback:
        topics = read_fields(fields, SesFields).topic_arns
        return await read_ses_callback(request, topics, self._certificates, sns_fetch(outgoing))


def _judge(reply: SmtpReply) -> Answer:
    judged = judge_reply(reply)
    if not isinstance(judged, CallRefused):
        return judged
    if _BARRED.search(reply.words):
        return LoginRefused(reply.detail)
    # SES asks no server before it takes a mail, so it judges only how an address is written.
    return CallRefused(Reason.MALFORMED if _NO_ADDRESS.search(reply.words) else Reason.REFUSED, reply.detail)
