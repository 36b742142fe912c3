"""Accounts with fakes of providers, all used in the same way: what `test_contract.py` asks of every kind."""

import json
import time
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import datetime, timedelta
from email import message_from_string
from email.policy import default
from email.utils import formatdate
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl, unquote

import msgspec
from msgspec import Struct

from shared.drivers.http.client import HttpOutgoing
from shared.messages.rules.answers import Answer, CallAccepted, CallUnanswered, NotNow
from shared.providers import Content, Provider, ProviderKind, ProviderRules, message_of
from shared.providers.apns import ApnsKind
from shared.providers.fcm import FcmKind
from shared.providers.http import HttpKind
from shared.providers.sandbox import SandboxKind
from shared.providers.sendgrid import SendGridKind
from shared.providers.ses import SesKind, key_of_tag
from shared.providers.smtp import SmtpKind
from shared.providers.twilio import TwilioKind
from tests.providers import apns_fake, fcm_fake
from tests.providers.fakes import FakeProcess
from tests.providers.keys import p256_pem, rsa_pem
from tests.providers.rules import Arrived, Cut, Rule
from tests.providers.ses_fake import CONFIGURATION_SET
from tests.providers.smtp_fake import PASSWORD

LOOPBACK = ("127.0.0.0/8",)
TWILIO_SID = "AC0123456789abcdef0123456789abcdef"
WHSEC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
RETRY_AFTER = {"Retry-After": "7"}

SAID = ("refused", "not now", "too fast", "login refused", "unclear")
"""What every provider can say in its own words, besides that it accepts."""


class Message(Struct):
    """A message as a provider got it. `key` is ours, as far as this kind of provider is told it."""

    key: str
    content: Content
    began_ns: int
    peer: int


class Account(ABC):
    """An account of one kind. `to` is an address of the kind, `content` a content."""

    to: str
    content: ClassVar[Content]
    addresses: tuple[str, ...]
    """Addresses of the kind, in several scripts where it knows any."""
    secret: ClassVar[Mapping[str, str]]

    def __init__(self, outgoing: HttpOutgoing, call_seconds: float) -> None:
        self._outgoing = outgoing
        self._opened: list[Provider] = []
        self.rules = ProviderRules(call_seconds=call_seconds, allowed_networks=LOOPBACK)

    @property
    @abstractmethod
    def kind(self) -> ProviderKind: ...

    @property
    @abstractmethod
    def fields(self) -> Mapping[str, Any]: ...

    @abstractmethod
    async def have_said(self, said: str) -> None:
        """Have the provider say this from now on: "accepted", "slow" (accepted, later), or one of `SAID`."""

    @abstractmethod
    async def arrived(self) -> list[Message]:
        """What the provider has got, in the order of arrival."""

    def open(self) -> Provider:
        kind = self.kind
        kind.check(self.fields, self.secret)
        opened = kind.open(self.fields, self.secret, self._outgoing, "c-1")
        self._opened.append(opened)
        return opened

    async def close(self) -> None:
        """Close what was opened."""
        for provider in self._opened:
            await provider.close()


class NetworkAccount(Account):
    """An account at a fake on the network."""

    secrets: tuple[str, ...]
    fake_module = "http_fake"
    asked_to_wait: timedelta | None = timedelta(seconds=7)
    """What "too fast" says of time."""
    before_its_data: type[NotNow | CallUnanswered] = CallUnanswered
    """What a break at the first bytes comes to."""
    before_its_data_on_kept: type[Answer] = CallUnanswered
    """The same, on a connection that had a message before."""

    def __init__(self, fake: FakeProcess, outgoing: HttpOutgoing, call_seconds: float) -> None:
        super().__init__(outgoing, call_seconds)
        self.fake = fake

    @abstractmethod
    def rule(self, said: str) -> Rule:
        """How this provider says it."""

    @abstractmethod
    def message(self, arrived: Arrived) -> Message: ...

    def echoing(self, rule: Rule, echo: str) -> Rule:
        """The rule with these words of the provider's."""
        return msgspec.structs.replace(rule, text=echo)

    async def hang_up(self, provider: Provider) -> None:
        """End the connections."""
        await provider.close()
        await self._outgoing.close()

    async def have_said(self, said: str) -> None:
        rule = self.rule("accepted" if said == "slow" else said)
        rule.delay_seconds = 0.3 if said == "slow" else 0
        await self.fake.answer(always=rule)

    async def arrived(self) -> list[Message]:
        return [self.message(each) for each in (await self.fake.tell()).arrived]


class HttpAccount(NetworkAccount):
    """Kind `http`."""

    to = "ana@example.com"
    content: ClassVar[Content] = {"to": "ana@example.com", "text": "Grüße ☃ 你好", "deep": [{"n": 1.5}]}
    addresses = ("ana@example.com", "søren.ünï@bücher.example", "用户@例え.jp", "+6591234567", "🎈")
    secrets = (WHSEC, "tok-3n-s3cret", "k3y-of-a-header")
    secret: ClassVar[Mapping[str, str]] = {"signingSecret": WHSEC, "authorization": "Bearer tok-3n-s3cret"}

    @property
    def kind(self) -> ProviderKind:
        return HttpKind(self.rules)

    @property
    def fields(self) -> Mapping[str, Any]:
        return {
            "url": f"{self.fake.url}/send?account=7",
            "headers": {"X-Api-Key": "k3y-of-a-header"},
            "idempotencyHeader": "Idempotency-Key",
        }

    def rule(self, said: str) -> Rule:
        match said:
            case "accepted":
                return Rule(202, '{"id": "p-42"}')
            case "refused":
                return Rule(422, '{"error": "no such list"}')
            case "not now":
                return Rule(503, "busy")
            case "too fast":
                return Rule(429, "slower", RETRY_AFTER)
            case "login refused":
                return Rule(401, "who are you?")
            case _:
                return Rule(500, "oops")

    def message(self, arrived: Arrived) -> Message:
        headers = arrived.headers
        assert headers["idempotency-key"] == headers["webhook-id"] == message_of(headers["carillon-message"])
        return Message(headers["carillon-message"], json.loads(arrived.body), arrived.began_ns, arrived.peer)


class TwilioAccount(NetworkAccount):
    """Kind `twilio`."""

    to = "+6591234567"
    content: ClassVar[Content] = {"text": "Grüße ☃ 你好 & = + %20"}
    addresses = ("+6591234567", "+4915112345678")
    secrets = ("t0ken-of-twilio", "QUMwMTIzNDU2Nzg5YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZjp0MGtlbi1vZi10d2lsaW8=")
    secret: ClassVar[Mapping[str, str]] = {"authToken": "t0ken-of-twilio"}

    @property
    def kind(self) -> ProviderKind:
        return TwilioKind(msgspec.structs.replace(self.rules, public_url="https://carillon.example/api/"))

    @property
    def fields(self) -> Mapping[str, Any]:
        return {"accountSid": TWILIO_SID, "from": "+15005550006", "apiUrl": self.fake.url}

    def rule(self, said: str) -> Rule:
        match said:
            case "accepted":
                return Rule(201, json.dumps({"sid": "SM" + "1f" * 16, "status": "queued"}))
            case "refused":
                return _twilio_error(400, 21_211, f"Invalid 'To' Phone Number: {self.to}")
            case "not now":
                return Rule(503, "busy")
            case "too fast":
                return msgspec.structs.replace(_twilio_error(429, 20_429, "Too many"), headers=RETRY_AFTER)
            case "login refused":
                return _twilio_error(401, 20_003, "Authenticate")
            case _:
                return Rule(500, "oops")

    def echoing(self, rule: Rule, echo: str) -> Rule:
        code = json.loads(rule.text)["code"] if rule.text.startswith("{") else 0
        return msgspec.structs.replace(rule, text=_twilio_error(rule.status, code, echo).text)

    def message(self, arrived: Arrived) -> Message:
        form = dict(parse_qsl(arrived.body, strict_parsing=True))
        assert form["From"] == self.fields["from"] and self.number(form["To"]) in self.addresses
        assert arrived.path == f"/2010-04-01/Accounts/{TWILIO_SID}/Messages.json"
        assert b64decode(arrived.headers["authorization"].removeprefix("Basic ")).decode() == (
            f"{TWILIO_SID}:t0ken-of-twilio"
        )
        key = unquote(form["StatusCallback"].removeprefix("https://carillon.example/api/callbacks/c-1/"))
        return Message(key, self.content_of(form), arrived.began_ns, arrived.peer)

    def number(self, to: str) -> str:
        """The number that a message was for."""
        return to

    def content_of(self, form: Mapping[str, str]) -> Content:
        """What it said."""
        return {"text": form["Body"]}


class WhatsAppAccount(TwilioAccount):
    """Kind `twilio`, whose sender is one of WhatsApp."""

    fake_module = "twilio_fake"
    content: ClassVar[Content] = {
        "contentSid": "HX" + "2e" * 16,
        "contentVariables": {"1": "Grüße ☃ 你好 & = + %20", "city": 'O\'Hare "T1"'},
    }

    @property
    def fields(self) -> Mapping[str, Any]:
        return {"accountSid": TWILIO_SID, "from": "whatsapp:+14155238886", "apiUrl": self.fake.url}

    def number(self, to: str) -> str:
        assert to.startswith("whatsapp:")
        return to.removeprefix("whatsapp:")

    def content_of(self, form: Mapping[str, str]) -> Content:
        if "Body" in form:  # the test message of a new credential
            return super().content_of(form)
        return {"contentSid": form["ContentSid"], "contentVariables": json.loads(form["ContentVariables"])}


def _twilio_error(status: int, code: int, message: str) -> Rule:
    return Rule(status, json.dumps({"code": code, "message": message, "status": status, "more_info": "https://x"}))


class SendGridAccount(NetworkAccount):
    """Kind `sendgrid`."""

    to = "ana@example.com"
    content: ClassVar[Content] = {"subject": "Grüße ☃", "text": "你好", "html": "<p>你好 &amp; „…“</p>"}
    addresses = ("ana@example.com", "o'neil+x@bücher.example")
    secrets = ("SG.s3cret-key",)
    secret: ClassVar[Mapping[str, str]] = {"apiKey": "SG.s3cret-key"}

    @property
    def kind(self) -> ProviderKind:
        return SendGridKind(self.rules)

    @property
    def fields(self) -> Mapping[str, Any]:
        return {"from": "news@example.com", "fromName": "Neues ☃", "replyTo": "me@example.com", "apiUrl": self.fake.url}

    def rule(self, said: str) -> Rule:
        match said:
            case "accepted":
                return Rule(202, "", {"X-Message-Id": "14c5d75ce93.dfd.64b469"})
            case "refused":
                return _sendgrid_error(400, f"Does not contain a valid address: {self.to}")
            case "not now":
                return Rule(503, "busy")
            case "too fast":
                now = int(time.time())
                date = formatdate(now, usegmt=True)
                said_too_fast = _sendgrid_error(429, "too many requests")
                return msgspec.structs.replace(said_too_fast, headers={"Date": date, "X-RateLimit-Reset": str(now + 7)})
            case "login refused":
                return _sendgrid_error(401, "The provided authorization grant is invalid")
            case _:
                return Rule(500, "oops")

    def echoing(self, rule: Rule, echo: str) -> Rule:
        return msgspec.structs.replace(rule, text=_sendgrid_error(rule.status, echo).text)

    def message(self, arrived: Arrived) -> Message:
        mail = json.loads(arrived.body)
        (person,) = mail["personalizations"]
        assert arrived.headers["authorization"] == "Bearer SG.s3cret-key"
        assert person["to"][0]["email"].isascii()
        assert mail["from"] == {"email": "news@example.com", "name": "Neues ☃"}
        assert mail["reply_to"] == {"email": "me@example.com"}
        texts = {part["type"]: part["value"] for part in mail["content"]}
        content = {"subject": mail["subject"], "text": texts["text/plain"], "html": texts["text/html"]}
        return Message(person["custom_args"]["carillon_message"], content, arrived.began_ns, arrived.peer)


def _sendgrid_error(status: int, message: str) -> Rule:
    fault = {"message": message, "field": "personalizations.0.to.0.email", "help": None}
    return Rule(status, json.dumps({"errors": [fault]}))


class SmtpAccount(NetworkAccount):
    """Kind `smtp`."""

    to = "ana@example.com"
    content: ClassVar[Content] = {"subject": "Grüße ☃", "text": "你好\n.\n..", "html": "<p>你好 &amp; „…“</p>"}
    addresses = ("ana@example.com", "o'neil+x@bücher.example")
    secrets = (PASSWORD, b64encode(f"\0news\0{PASSWORD}".encode()).decode())
    secret: ClassVar[Mapping[str, str]] = {"password": PASSWORD}
    fake_module = "smtp_fake"
    asked_to_wait = None
    before_its_data = NotNow
    before_its_data_on_kept = CallAccepted

    @property
    def kind(self) -> ProviderKind:
        return SmtpKind(self.rules)

    @property
    def fields(self) -> Mapping[str, Any]:
        return {
            "host": "127.0.0.1",
            "port": self.fake.port,
            "tls": "never",
            "user": "news",
            "from": "news@example.com",
            "fromName": "Neues ☃",
            "replyTo": "me@example.com",
        }

    def rule(self, said: str) -> Rule:
        match said:
            case "accepted":
                return Rule(250)
            case "refused":
                return Rule(550, f"5.1.1 <{self.to}>: no such user")
            case "not now":
                return Rule(451, "4.3.0 try later")
            case "too fast":
                return Rule(450, "4.7.1 rate limit exceeded")
            case "login refused":
                return Rule(535, "who are you?")
            case _:
                return Rule(250, cut=Cut.CALL)

    def echoing(self, rule: Rule, echo: str) -> Rule:
        return msgspec.structs.replace(rule, text=f"{rule.text} {echo}")

    def message(self, arrived: Arrived) -> Message:
        mail = message_from_string(arrived.body, policy=default)
        assert arrived.headers["mail-from"] == "news@example.com" and arrived.headers["rcpt-to"].isascii()
        assert str(mail["From"]) == "Neues ☃ <news@example.com>" and mail["To"].addresses[0].addr_spec.isascii()
        texts = {name: mail.get_body((name,)) for name in ("plain", "html")}
        read = {
            name: part.get_content().replace("\r\n", "\n").removesuffix("\n")
            for name, part in texts.items()
            if part is not None
        }
        content = {"subject": str(mail["Subject"]), "text": read["plain"], "html": read["html"]}
        return Message(str(mail["X-Carillon-Message"]), content, arrived.began_ns, arrived.peer)


class SesAccount(SmtpAccount):
    """Kind `ses`."""

    fake_module = "ses_fake"

    @property
    def kind(self) -> ProviderKind:
        return SesKind(self.rules)

    @property
    def fields(self) -> Mapping[str, Any]:
        topic = "arn:aws:sns:eu-west-1:123456789012:mails"
        return {**super().fields, "configurationSet": CONFIGURATION_SET, "topicArns": [topic]}

    def rule(self, said: str) -> Rule:
        match said:
            case "refused":
                return Rule(554, f"Message rejected: Email address is not verified: {self.to}")
            case "not now":
                return Rule(454, "Temporary service failure")
            case "too fast":
                return Rule(454, "Throttling failure: Maximum sending rate exceeded.")
            case _:
                return super().rule(said)

    def message(self, arrived: Arrived) -> Message:
        mail = message_from_string(arrived.body, policy=default)
        name, _, tag = str(mail["X-SES-MESSAGE-TAGS"]).partition("=")
        assert name == "carillon_message" and key_of_tag(tag) == str(mail["X-Carillon-Message"])
        return super().message(arrived)


class FcmAccount(NetworkAccount):
    """Kind `fcm`."""

    to = "dT3sTt0k3n:APA91bF-one"
    content: ClassVar[Content] = {
        "notification": {"title": "Grüße ☃", "body": "你好"},
        "data": {"deep": "1"},
        "android": {"ttl": "3600s"},
    }
    addresses = ("dT3sTt0k3n:APA91bF-one", "dT3sTt0k3n:APA91bF_two")
    secrets = (rsa_pem(), rsa_pem().splitlines()[1])
    fake_module = "fcm_fake"

    @property
    def kind(self) -> ProviderKind:
        return FcmKind(self.rules)

    @property
    def fields(self) -> Mapping[str, Any]:
        return {"apiUrl": self.fake.url}

    @property
    def secret(self) -> Mapping[str, str]:  # type: ignore[override]
        return {"serviceAccount": service_account(self.fake.url)}

    def rule(self, said: str) -> Rule:
        match said:
            case "accepted":
                return Rule(200, json.dumps({"name": f"projects/{fcm_fake.PROJECT}/messages/0:1500415314455276%31bd"}))
            case "refused":
                return fcm_fake.error(404, "NOT_FOUND", f"no such {self.to}", "UNREGISTERED")
            case "not now":
                return fcm_fake.error(503, "UNAVAILABLE", "The service is unavailable.", "UNAVAILABLE")
            case "too fast":
                said_too_fast = fcm_fake.error(429, "RESOURCE_EXHAUSTED", "Quota exceeded", "QUOTA_EXCEEDED")
                return msgspec.structs.replace(said_too_fast, headers=RETRY_AFTER)
            case "login refused":
                return fcm_fake.error(403, "PERMISSION_DENIED", "Permission 'cloudmessaging.messages.create' denied")
            case _:
                return fcm_fake.error(500, "INTERNAL", "Internal error encountered.", "INTERNAL")

    def echoing(self, rule: Rule, echo: str) -> Rule:
        told = json.loads(rule.text)
        told["error"]["message"] = echo
        return msgspec.structs.replace(rule, text=json.dumps(told))

    def message(self, arrived: Arrived) -> Message:
        message = json.loads(arrived.body)["message"]
        assert message.pop("token") in self.addresses
        tag = message["android"].pop("notification")["tag"]
        assert message.pop("apns") == {"headers": {"apns-collapse-id": tag}}
        # FCM is told no attempt: it tells us nothing afterwards.
        return Message(f"{tag}~1", message, arrived.began_ns, arrived.peer)


def service_account(url: str) -> str:
    """The file that Google gives out, for a fake at this URL."""
    return json.dumps(
        {
            "type": "service_account",
            "project_id": fcm_fake.PROJECT,
            "private_key_id": "5f1e",
            "private_key": rsa_pem(),
            "client_email": fcm_fake.CLIENT,
            "client_id": "1234",
            "auth_uri": "https://accounts.google.com/o/oauth2/auth",
            "token_uri": f"{url}/token",
        }
    )


class ApnsAccount(NetworkAccount):
    """Kind `apns`."""

    to = "0123456789abcdef" * 4
    content: ClassVar[Content] = {"aps": {"alert": {"title": "Grüße ☃", "body": "你好"}}, "deep": [{"n": 1.5}]}
    addresses = ("0123456789abcdef" * 4, "ABCDEF0123456789" * 4)
    secrets = (p256_pem(), p256_pem().splitlines()[1])
    secret: ClassVar[Mapping[str, str]] = {"key": p256_pem()}
    fake_module = "apns_fake"

    @property
    def kind(self) -> ProviderKind:
        return ApnsKind(self.rules)

    @property
    def fields(self) -> Mapping[str, Any]:
        return {
            "teamId": apns_fake.TEAM,
            "keyId": apns_fake.KEY,
            "topic": apns_fake.TOPIC,
            "apiUrl": self.fake.url,
            "expirationSeconds": 60,
        }

    def rule(self, said: str) -> Rule:
        match said:
            case "accepted":
                return Rule(200)
            case "refused":
                return apns_fake.refusal("DeviceTokenNotForTopic")
            case "not now":
                return Rule(503, '{"reason":"ServiceUnavailable"}')
            case "too fast":
                return msgspec.structs.replace(apns_fake.refusal("TooManyProviderTokenUpdates"), headers=RETRY_AFTER)
            case "login refused":
                return apns_fake.refusal("InvalidProviderToken")
            case _:
                return Rule(500, '{"reason":"InternalServerError"}')

    def echoing(self, rule: Rule, echo: str) -> Rule:
        return msgspec.structs.replace(rule, text=json.dumps({"reason": f"{json.loads(rule.text)['reason']} {echo}"}))

    def message(self, arrived: Arrived) -> Message:
        assert arrived.path.removeprefix("/3/device/") in self.addresses
        assert arrived.headers["apns-topic"] == apns_fake.TOPIC and arrived.headers["apns-push-type"] == "alert"
        # APNs is told no attempt: it tells us nothing afterwards.
        key = f"{arrived.headers['apns-collapse-id']}~1"
        return Message(key, json.loads(arrived.body), arrived.began_ns, arrived.peer)


class SandboxAccount(Account):
    """Kind `sandbox`, which is told by the address what to say."""

    to = "ana@example.com"
    content = HttpAccount.content
    addresses = HttpAccount.addresses
    secret: ClassVar[Mapping[str, str]] = {}
    fields: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, outgoing: HttpOutgoing, path: str) -> None:
        super().__init__(outgoing, 10.0)
        self._path = path

    @property
    def kind(self) -> ProviderKind:
        return SandboxKind(msgspec.structs.replace(self.rules, sandbox_file=self._path))

    async def have_said(self, said: str) -> None:
        self.to = {"refused": "ana+bounce@example.com", "unclear": "ana+lost@example.com", "slow": "a+slow@x"}.get(
            said, "ana@example.com"
        )

    async def arrived(self) -> list[Message]:
        lines = Path(self._path).read_text("utf-8").splitlines()
        return [_from_line(json.loads(line)) for line in lines]


def _from_line(line: dict[str, Any]) -> Message:
    began = datetime.fromisoformat(line["at"]).timestamp() - time.time() + time.monotonic()
    return Message(line["key"], line["content"], int(began * 1e9), 0)


NETWORK: dict[str, type[NetworkAccount]] = {
    "apns": ApnsAccount,
    "fcm": FcmAccount,
    "http": HttpAccount,
    "sendgrid": SendGridAccount,
    "ses": SesAccount,
    "smtp": SmtpAccount,
    "twilio": TwilioAccount,
    "whatsapp": WhatsAppAccount,
}
EVERY = (*NETWORK, "sandbox")
