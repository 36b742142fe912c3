"""Amazon SNS and SES: only the listed topics are heard, and only Amazon is asked for certificates."""

import asyncio
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace

from shared.core.errors import Unavailable
from shared.messages.rules.ledger import MessageState
from shared.messages.rules.suppressions import SuppressionCause
from shared.providers.base import Callback, CallbackRequest, NotSigned, Unreadable
from shared.providers.ses import read_ses_callback
from shared.providers.sns import SnsCertificates, is_sns_host, sns_fetch
from tests.drivers.http.receiver import calling, receiving
from tests.providers.callbacks import AT, CERTIFICATE_URL, SNS, TOPIC, SnsSigner

KEY = "0190b5a2.00000003.00042~2"
TAG = "0190b5a2_2e00000003_2e00042_7e2"
SIGNER, STRANGER = SnsSigner(), SnsSigner()
SENT, DELIVERED, READ = MessageState.SENT, MessageState.DELIVERED, MessageState.READ
FAILED, INVALID = MessageState.FAILED, MessageState.INVALID
MAIL = {"messageId": "0102-ses", "destination": ["ana@example.com"], "tags": {"carillon_message": [TAG]}}


class Files:
    """Where certificates lie; it counts who asks."""

    def __init__(self, content: bytes = SIGNER.certificate) -> None:
        self.content = content
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def fetch(self, url: str) -> bytes:
        self.asked.append(url)
        await self.gate.wait()
        if not self.content:
            raise Unavailable("no answer")
        return self.content


async def read(
    request: CallbackRequest, files: Files | None = None, certificates: SnsCertificates | None = None
) -> Callback:
    return await read_ses_callback(request, (TOPIC,), certificates or SnsCertificates(), (files or Files()).fetch)


def event(name: str, **fields: Any) -> dict[str, Any]:
    return {"eventType": name, "mail": MAIL, name.lower(): {"timestamp": "2026-12-24T13:59:00.000Z"}} | fields


def bounce(kind: str, sub_type: str = "General", **recipient: str) -> dict[str, Any]:
    told = {"emailAddress": "ana@example.com", "status": "5.1.1", "diagnosticCode": "no ana@example.com"} | recipient
    details = {
        "bounceType": kind,
        "bounceSubType": sub_type,
        "bouncedRecipients": [told],
        "timestamp": "2026-12-24T13:59:00.000Z",
    }
    return {"eventType": "Bounce", "mail": MAIL, "bounce": details}


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("subject", [{}, {"Subject": "Amazon SES Email Event Notification"}])
async def test_both_versions_of_the_signature_are_known(version: str, subject: dict[str, str]) -> None:
    callback = await read(SIGNER.notification(event("Delivery"), version=version, **subject))
    [news] = callback.news
    assert (news.state, news.key, news.provider_id) == (DELIVERED, KEY, "0102-ses")
    assert callback.at == AT
    assert news.at is not None
    assert news.at < AT


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (event("Send"), [(SENT, "")]),
        (event("Delivery"), [(DELIVERED, "")]),
        (event("Open"), [(READ, "")]),
        (event("Click"), [(READ, "")]),
        ({"notificationType": "Delivery", "mail": MAIL}, [(DELIVERED, "")]),
        (event("DeliveryDelay"), []),
        (event("Subscription"), []),
        (bounce("Permanent"), [(INVALID, "hard-bounce")]),
        (bounce("Permanent", status="5.2.2"), [(FAILED, "soft-bounce")]),
        (bounce("Permanent", status="", diagnosticCode=""), [(INVALID, "hard-bounce")]),
        (bounce("Permanent", "OnAccountSuppressionList"), [(INVALID, "suppressed")]),
        (bounce("Transient", "MailboxFull"), [(FAILED, "soft-bounce")]),
        (bounce("Undetermined"), [(FAILED, "undelivered")]),
        (event("Complaint"), [(INVALID, "complaint")]),
        (event("Complaint", complaint={"complaintFeedbackType": "abuse"}), [(INVALID, "complaint")]),
        (event("Complaint", complaint={"complaintFeedbackType": "not-spam"}), []),
        (event("Complaint", complaint={"complaintFeedbackType": "auth-failure"}), []),
        (event("Reject", reject={"reason": "Bad content"}), [(FAILED, "refused")]),
        ("Successfully validated SNS topic for Amazon SES event publishing.", []),
    ],
)
async def test_what_ses_says_of_a_mail(told: Any, expected: list[Any]) -> None:
    callback = await read(SIGNER.notification(told))
    assert [(news.state, news.reason) for news in callback.news] == expected
    assert not callback.confirm_url
    for news in callback.news:
        assert "ana@example.com" not in news.detail
        assert news.recipient == ("ana@example.com" if news.reason else "")


@pytest.mark.parametrize(
    ("told", "cause"),
    [
        (bounce("Permanent", "OnAccountSuppressionList"), SuppressionCause.BOUNCE),
        (bounce("Permanent", "Suppressed"), SuppressionCause.BOUNCE),
        (event("Complaint", complaint={"complaintSubType": "OnAccountSuppressionList"}), SuppressionCause.COMPLAINT),
        (bounce("Permanent"), None),  # its news suppress by themselves
        (bounce("Transient"), None),
    ],
)
async def test_ses_tells_whom_it_had_suppressed(told: Any, cause: SuppressionCause | None) -> None:
    callback = await read(SIGNER.notification(told))
    found = [(each.key, each.recipient, each.cause) for each in callback.suppressions]
    assert found == ([] if cause is None else [(KEY, "ana@example.com", cause)])


async def test_a_bounce_tells_the_servers_words() -> None:
    [news] = (await read(SIGNER.notification(bounce("Permanent", "NoEmail")))).news
    assert news.detail == "Bounce Permanent/NoEmail no a…@example.com"


@pytest.mark.parametrize(
    ("mail", "key"),
    [
        ({"headers": [{"name": "x-carillon-message", "value": KEY}]}, KEY),
        ({"headers": [{"name": "Subject", "value": "hi"}]}, ""),
        ({}, ""),
    ],
)
async def test_our_key_may_stand_in_a_header_or_nowhere(mail: dict[str, Any], key: str) -> None:
    [news] = (await read(SIGNER.notification(event("Send", mail={"messageId": "0102-ses"} | mail)))).news
    assert (news.key, news.provider_id) == (key, "0102-ses")


async def test_a_subscription_is_to_be_confirmed() -> None:
    callback = await read(SIGNER.confirmation())
    assert callback.confirm_url == f"{SNS}/?Action=ConfirmSubscription&TopicArn={TOPIC}&Token=2336412f37"
    assert callback.news == ()
    ended = await read(SIGNER.confirmation(Type="UnsubscribeConfirmation"))
    assert (ended.confirm_url, ended.news) == ("", ())


GOOD = SIGNER.notification(event("Delivery"))


@pytest.mark.parametrize(
    "url",
    [
        "https://sns.eu-west-1.amazonaws.com.evil.example/SimpleNotificationService-" + "0" * 32 + ".pem",
        "https://sns.eu-west-1.evil.example/SimpleNotificationService-" + "0" * 32 + ".pem",
        "https://evil.example/sns.eu-west-1.amazonaws.com/SimpleNotificationService-" + "0" * 32 + ".pem",
        "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-" + "0" * 32 + ".pem",
        "https://sns.eu-west-1.amazonaws.com.cn/SimpleNotificationService-" + "0" * 32 + ".pem",
        "https://s3.eu-west-1.amazonaws.com/SimpleNotificationService-" + "0" * 32 + ".pem",
        CERTIFICATE_URL.replace("https:", "http:"),
        CERTIFICATE_URL.replace(".com/", ".com:8443/"),
        CERTIFICATE_URL.replace("sns.", "me@sns."),
        CERTIFICATE_URL.replace("https://", "https://evil.example\\@"),
        CERTIFICATE_URL.replace("SimpleNotificationService", "mine/../SimpleNotificationService"),
        CERTIFICATE_URL.replace("SimpleNotificationService-", "my-bucket-"),
        CERTIFICATE_URL + "?x=1",
        CERTIFICATE_URL + "#x",
        CERTIFICATE_URL + "\n",
        "https://[",
        "",
    ],
)
async def test_a_certificate_from_elsewhere_is_never_fetched(url: str) -> None:
    files = Files()
    with pytest.raises(NotSigned):
        await read(SIGNER.notification(event("Delivery"), SigningCertURL=url), files)
    assert files.asked == []


@pytest.mark.parametrize("topic", [TOPIC + "2", TOPIC.replace("eu-west-1", "evil.example/x"), "", "::::::"])
async def test_of_another_topic_nothing_is_heard_and_nothing_fetched(topic: str) -> None:
    files = Files()
    with pytest.raises(NotSigned):
        await read(SIGNER.notification(event("Delivery"), TopicArn=topic), files)
    assert files.asked == []


@pytest.mark.parametrize(
    "forged",
    [
        STRANGER.notification(event("Delivery")),
        SIGNER.notification(event("Delivery"), Signature="AAAA"),
        SIGNER.notification(event("Delivery"), Signature="?"),
        SIGNER.notification(event("Delivery"), version="3", Signature="AAAA"),
        replace(GOOD, body=GOOD.body.replace(b"Delivery", b"Reject")),
        replace(GOOD, body=GOOD.body.replace(b"2026-12-24T14", b"2026-12-24T15")),
        replace(GOOD, body=GOOD.body.replace(b'"SignatureVersion": "2"', b'"SignatureVersion": "1"')),
        replace(GOOD, body=b""),
        replace(GOOD, body=b"[]"),
        replace(GOOD, body=b"[" * 100_000),
        replace(GOOD, body=b'{"Type": "Notification"}'),
        SIGNER.notification(event("Delivery"), Type="Nonsense"),
    ],
)
async def test_what_sns_has_not_signed_is_not_heard(forged: CallbackRequest) -> None:
    with pytest.raises(NotSigned):
        await read(forged)


@pytest.mark.parametrize(
    "url",
    [
        f"https://evil.example/?Action=ConfirmSubscription&TopicArn={TOPIC}",
        f"http://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn={TOPIC}",
        f"{SNS}/?Action=DeleteTopic&TopicArn={TOPIC}",
        f"{SNS}/?Action=ConfirmSubscription&Action=DeleteTopic&TopicArn={TOPIC}",
        f"{SNS}/?Action=ConfirmSubscription&TopicArn={TOPIC}2",
        f"{SNS}/",
    ],
)
async def test_no_other_url_is_confirmed_though_it_were_signed(url: str) -> None:
    with pytest.raises(NotSigned):
        await read(SIGNER.confirmation(url=url))


async def test_signed_nonsense_is_told_as_such() -> None:
    with pytest.raises(Unreadable):
        await read(SIGNER.notification({"eventType": 17}))


async def test_a_certificate_is_fetched_once_by_many_and_kept() -> None:
    files, certificates = Files(), SnsCertificates()
    files.gate.clear()
    many = [asyncio.create_task(read(GOOD, files, certificates)) for _ in range(5)]
    await asyncio.sleep(0)
    many[0].cancel()
    files.gate.set()
    assert [len((await task).news) for task in many[1:]] == [1, 1, 1, 1]
    await read(GOOD, files, certificates)
    assert files.asked == [CERTIFICATE_URL]


async def test_what_cannot_be_fetched_is_not_asked_for_again_at_once() -> None:
    now = 100.0
    files, certificates = Files(b""), SnsCertificates(monotonic=lambda: now)
    for _ in range(3):
        with pytest.raises(Unavailable):
            await read(GOOD, files, certificates)
    assert len(files.asked) == 1
    now, files.content = 200.0, SIGNER.certificate
    assert len((await read(GOOD, files, certificates)).news) == 1


async def test_what_is_no_certificate_is_none() -> None:
    with pytest.raises(Unavailable):
        await read(GOOD, Files(b"<html>"))


async def test_forged_posts_make_us_fetch_few_certificates_at_once() -> None:
    files, certificates = Files(), SnsCertificates()
    files.gate.clear()
    urls = [f"{SNS}/SimpleNotificationService-{number:032x}.pem" for number in range(50)]
    posts = [SIGNER.notification(event("Delivery"), SigningCertURL=url) for url in urls]
    reading = [asyncio.create_task(read(post, files, certificates)) for post in posts]
    await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
    assert len(files.asked) == 4
    files.gate.set()
    ends = await asyncio.gather(*reading, return_exceptions=True)
    assert sum(isinstance(end, Unavailable) for end in ends) == 46


async def test_certificates_come_over_our_own_client() -> None:
    async with receiving() as server, calling() as outgoing:
        server.answer = lambda: web.Response(body=SIGNER.certificate)
        fetch = sns_fetch(outgoing)
        assert await fetch(f"{server.url}/x.pem") == SIGNER.certificate
        [got] = server.received
        assert (got.method, got.path, got.body) == ("GET", "/x.pem", b"")
        server.answer = lambda: web.Response(status=302, headers={"Location": "/y.pem"})
        with pytest.raises(Unavailable):
            await fetch(f"{server.url}/x.pem")
        assert len(server.received) == 2
        with pytest.raises(Unavailable):
            await fetch("http://127.0.0.2:1/x.pem")


@pytest.mark.parametrize(
    ("host", "topic", "is_one"),
    [
        ("sns.eu-west-1.amazonaws.com", TOPIC, True),
        ("sns.us-gov-west-1.amazonaws.com", "arn:aws-us-gov:sns:us-gov-west-1:123456789012:x", True),
        ("sns.cn-north-1.amazonaws.com.cn", "arn:aws-cn:sns:cn-north-1:123456789012:x", True),
        ("sns.cn-north-1.amazonaws.com", "arn:aws-cn:sns:cn-north-1:123456789012:x", False),
        ("sns.eusc-de-east-1.amazonaws.eu", "arn:aws-eusc:sns:eusc-de-east-1:123456789012:x", True),
        ("sns.eusc-de-east-1.amazonaws.com", "arn:aws-eusc:sns:eusc-de-east-1:123456789012:x", False),
        ("sns.us-iso-east-1.c2s.ic.gov", "arn:aws-iso:sns:us-iso-east-1:123456789012:x", False),
        ("SNS.eu-west-1.amazonaws.com", TOPIC, False),
        ("sns..amazonaws.com", "arn:aws:sns::123456789012:x", False),
    ],
)
def test_each_region_has_its_host(host: str, topic: str, is_one: bool) -> None:
    assert is_sns_host(host, topic) is is_one
