"""What providers tell later: heard where they have signed it, and only there."""

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec.structs import replace
from standardwebhooks import Webhook

from shared.core.errors import Invalid, NotFound
from shared.drivers.http import Outgoing
from shared.messages.rules.answers import DETAIL_CHARACTERS
from shared.messages.rules.ledger import MessageState
from shared.messages.rules.suppressions import SuppressionCause
from shared.providers import ProviderRules, read_key
from shared.providers.base import Callback, CallbackNews, CallbackRequest, NotSigned, Unreadable
from shared.providers.http import HttpKind
from shared.providers.sandbox import SandboxKind
from shared.providers.sendgrid import SendGridKind
from shared.providers.twilio import TwilioKind
from tests.drivers.http.receiver import calling
from tests.providers.accounts import TWILIO_SID, WHSEC
from tests.providers.callbacks import AT, TOKEN, URL, SendGridSigner, twilio, webhook

KEY = "0190b5a2.00000003.00042~2"
OTHER_WHSEC = "whsec_" + "QkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJC"
RULES = ProviderRules()
SIGNER = SendGridSigner()
SENT, DELIVERED, READ = MessageState.SENT, MessageState.DELIVERED, MessageState.READ
FAILED, INVALID = MessageState.FAILED, MessageState.INVALID


async def read(kind: Any, secret: dict[str, str], request: CallbackRequest) -> Callback:
    """What the kind makes of it. None of these kinds calls anybody for that."""
    async with calling() as outgoing:
        called: Outgoing = outgoing
        got: Callback = await kind.read_callback({}, secret, request, called)
    return got


async def of_twilio(request: CallbackRequest) -> Callback:
    return await read(TwilioKind(RULES), {"authToken": TOKEN}, request)


async def of_sendgrid(request: CallbackRequest, key: str = SIGNER.event_key) -> Callback:
    return await read(SendGridKind(RULES), {"apiKey": "SG.key", "eventKey": key}, request)


async def of_http(request: CallbackRequest, *secrets: str) -> Callback:
    named = dict(zip(("signingSecret", "oldSigningSecret"), secrets or (WHSEC,), strict=False))
    return await read(HttpKind(RULES), named, request)


def form(status: str, **fields: str) -> dict[str, str]:
    return {"MessageSid": "SM1", "MessageStatus": status, "To": "+6591234567", "AccountSid": TWILIO_SID} | fields


def states(callback: Callback) -> list[tuple[MessageState, str]]:
    return [(news.state, news.reason) for news in callback.news]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (KEY, ("0190b5a2.00000003.00042", 2)),
        ("0190b5a2-0000-7000-8000-000000000001~17", ("0190b5a2-0000-7000-8000-000000000001", 17)),
        ("m", ("m", 0)),
        ("m~", ("", 0)),
        ("m~x", ("", 0)),
        ("m~1~1", ("", 0)),
        ("m~-1", ("", 0)),
        ("m~1234567890", ("", 0)),
        ("a b~1", ("", 0)),
        ("m\x00~1", ("", 0)),
        ("m" * 256, ("", 0)),
        ("", ("", 0)),
    ],
)
def test_a_key_is_read_or_is_none(key: str, expected: tuple[str, int]) -> None:
    assert read_key(key) == expected


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (form("queued"), []),
        (form("accepted"), []),
        (form("sending"), []),
        (form("sent"), [(SENT, "")]),
        (form("delivered"), [(DELIVERED, "")]),
        (form("read"), [(READ, "")]),
        (form("undelivered", ErrorCode="30003"), [(FAILED, "soft-bounce")]),
        (form("undelivered", ErrorCode="30005"), [(INVALID, "unregistered")]),
        (form("undelivered", ErrorCode="30007"), [(FAILED, "refused")]),
        (form("undelivered", ErrorCode="30008"), [(FAILED, "undelivered")]),
        (form("undelivered"), [(FAILED, "undelivered")]),
        (form("failed", ErrorCode="21610"), [(INVALID, "unsubscribed")]),
        (form("failed", To="whatsapp:+6591234567", ErrorCode="63016"), [(FAILED, "refused")]),
        (form("undelivered", To="whatsapp:+6591234567", ErrorCode="63024"), [(INVALID, "unregistered")]),
        (form("undelivered", To="whatsapp:+6591234567", ErrorCode="63014"), [(INVALID, "unsubscribed")]),
        (form("undelivered", To="whatsapp:+6591234567", ErrorCode="63018"), [(FAILED, "undelivered")]),
        (form("failed", ErrorCode="99999"), [(FAILED, "undelivered")]),
        (form("canceled"), [(FAILED, "other")]),
        (form("whatever comes next"), []),
    ],
)
async def test_what_twilio_says_of_a_message(told: dict[str, str], expected: list[Any]) -> None:
    callback = await of_twilio(twilio(told, key=KEY))
    assert states(callback) == expected
    assert [(news.key, news.provider_id, news.at) for news in callback.news] == [(KEY, "SM1", None)] * len(expected)
    assert callback.at is None


@pytest.mark.parametrize("prefix", ["", "whatsapp:"])
async def test_twilio_tells_who_opts_out(prefix: str) -> None:
    """https://www.twilio.com/docs/messaging/tutorials/advanced-opt-out"""
    said = {"MessageSid": "SM2", "SmsStatus": "received", "From": f"{prefix}+6591234567", "To": "+6588888888"}
    [told] = (await of_twilio(twilio(said | {"Body": "Stop", "OptOutType": "STOP"}))).suppressions
    assert (told.recipient, told.cause, told.key) == ("+6591234567", SuppressionCause.UNSUBSCRIBE, "")
    for other in ({"Body": "Help", "OptOutType": "HELP"}, {"Body": "Start", "OptOutType": "START"}, {"Body": "STOP"}):
        assert (await of_twilio(twilio(said | other))) == Callback()


async def test_the_example_of_twilios_own_documents() -> None:
    """https://www.twilio.com/docs/usage/security: its URL, its form, its token and its signature."""
    body = b"CallSid=CA1234567890ABCDE&Caller=%2B14158675309&Digits=1234&From=%2B14158675309&To=%2B18005551212"
    headers = {"x-twilio-signature": "RSOYDt4T1cUTdK1PDd93/VVr8B8="}
    request = CallbackRequest("https://mycompany.com/myapp.php?foo=1&bar=2", headers, body)
    secret = {"authToken": "12345"}
    assert (await read(TwilioKind(RULES), secret, request)).news == ()
    with pytest.raises(NotSigned):
        await read(TwilioKind(RULES), secret, replace(request, url="https://mycompany.com/myapp.php?foo=1"))


@pytest.mark.parametrize("signed", [f"{URL}/{KEY}".replace(".com/", ".com:443/"), f"{URL}/{KEY}"])
async def test_twilio_signs_with_the_port_or_without(signed: str) -> None:
    assert states(await of_twilio(twilio(form("sent"), key=KEY, url=signed))) == [(SENT, "")]


@pytest.mark.parametrize(
    "forged",
    [
        twilio(form("delivered"), key=KEY, token="another"),
        twilio(form("delivered"), key=KEY, url=f"{URL}/another~1"),
        twilio(form("delivered"), key=KEY, url=f"http://carillon.example.com/callbacks/{KEY}"),
        twilio(form("delivered"), key=KEY, url=f"{URL}/{KEY}".replace(".com/", ".com:8443/")),
        replace(twilio(form("delivered"), key=KEY), headers={}),
        replace(twilio(form("delivered"), key=KEY), headers={"x-twilio-signature": "ünicode"}),
        replace(twilio(form("sent"), key=KEY), body=b"MessageSid=SM1&MessageStatus=delivered"),
        replace(twilio(form("sent"), key=KEY), body=b"\xff\xfe"),
        replace(twilio(form("sent"), key=KEY), body=b"&".join(b"a=1" for _ in range(1_000))),
    ],
)
async def test_what_twilio_has_not_signed_is_not_heard(forged: CallbackRequest) -> None:
    with pytest.raises(NotSigned):
        await of_twilio(forged)


async def test_a_detail_hides_the_number_and_the_token_and_is_short() -> None:
    words = f"no route to +6591234567 by {TOKEN} " + "x" * 1_000
    [news] = (await of_twilio(twilio(form("failed", ErrorCode="30008", ErrorMessage=words), key=KEY))).news
    assert news.detail.startswith("30008: no route to")
    assert "91234567" not in news.detail
    assert TOKEN not in news.detail
    assert len(news.detail) <= DETAIL_CHARACTERS


def event(name: str, **fields: Any) -> dict[str, Any]:
    known = {"email": "ana@example.com", "timestamp": int(AT.timestamp()), "sg_event_id": "e", "carillon_message": KEY}
    return known | {"event": name, "sg_message_id": "14c5d75ce93.dfd.64b469.filter0001.16648.5515E0B88.0"} | fields


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (event("processed"), [(SENT, "")]),
        (event("deferred", response="452 busy"), []),
        (event("delivered"), [(DELIVERED, "")]),
        (event("open"), [(READ, "")]),
        (event("click", url="https://x"), [(READ, "")]),
        (event("bounce", type="bounce", status="5.1.1", reason="no ana@example.com here"), [(INVALID, "hard-bounce")]),
        (event("bounce", type="bounce", reason="550 user unknown"), [(INVALID, "hard-bounce")]),
        (event("bounce", bounce_classification="Invalid Address"), [(INVALID, "hard-bounce")]),
        (event("bounce", type="blocked", status="5.7.1"), [(FAILED, "soft-bounce")]),
        (event("bounce", type="bounce", status="5.7.1"), [(FAILED, "soft-bounce")]),
        (event("bounce", type="bounce", status="5.2.2", reason="mailbox full"), [(FAILED, "soft-bounce")]),
        (event("bounce", type="expired", reason="expired"), [(FAILED, "soft-bounce")]),
        (event("bounce", status="5.1.1", bounce_classification="Reputation"), [(FAILED, "soft-bounce")]),
        (event("bounce", type="bounce", status="4.2.2"), [(FAILED, "soft-bounce")]),
        (event("dropped", reason="Bounced Address"), [(INVALID, "suppressed")]),
        (event("dropped", reason="Unsubscribed Address"), [(INVALID, "unsubscribed")]),
        (event("dropped", reason="Invalid"), [(INVALID, "malformed")]),
        (event("dropped", reason="Spam Content"), [(FAILED, "refused")]),
        (event("spamreport"), [(INVALID, "complaint")]),
        (event("group_unsubscribe"), []),
        (event("group_resubscribe"), []),
        (event("delivered", sg_message_id=17), []),
    ],
)
async def test_what_sendgrid_says_of_a_message(told: dict[str, Any], expected: list[Any]) -> None:
    callback = await of_sendgrid(SIGNER.post([told]))
    assert states(callback) == expected
    assert callback.at == AT
    for news in callback.news:
        assert (news.key, news.provider_id, news.at) == (KEY, "14c5d75ce93.dfd.64b469", AT)
        assert "ana@example.com" not in news.detail
        assert news.recipient == ("ana@example.com" if news.reason else "")


@pytest.mark.parametrize("name", ["unsubscribe", "group_unsubscribe"])
async def test_sendgrid_tells_who_unsubscribes(name: str) -> None:
    callback = await of_sendgrid(SIGNER.post([event(name), event("delivered")]))
    [wish] = callback.suppressions
    assert (wish.key, wish.provider_id, wish.at) == (KEY, "14c5d75ce93.dfd.64b469", AT)
    assert wish.recipient == "ana@example.com"
    assert states(callback) == [(DELIVERED, "")]


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("Bounced Address", SuppressionCause.BOUNCE),
        ("Spam Reporting Address", SuppressionCause.COMPLAINT),
        ("Unsubscribed Address", None),  # its news suppress by themselves
        ("Spam Content", None),
    ],
)
async def test_sendgrid_tells_whom_it_had_suppressed(reason: str, cause: SuppressionCause | None) -> None:
    callback = await of_sendgrid(SIGNER.post([event("dropped", reason=reason)]))
    told = [(each.key, each.recipient, each.cause) for each in callback.suppressions]
    assert told == ([] if cause is None else [(KEY, "ana@example.com", cause)])


async def test_a_bounce_of_sendgrid_may_name_no_message() -> None:
    fields = {"carillon_message": None, "sg_message_id": None, "type": "bounce", "status": "5.1.1", "reason": None}
    [news] = (await of_sendgrid(SIGNER.post([event("bounce", **fields)]))).news
    assert (news.key, news.provider_id, news.recipient, news.reason) == ("", "", "ana@example.com", "hard-bounce")


async def test_an_event_that_nobody_understands_costs_none_of_the_others() -> None:
    strange = [event("delivered"), event("delivered", status=[]), "what", event("open", timestamp="nonsense")]
    assert states(await of_sendgrid(SIGNER.post(strange))) == [(DELIVERED, ""), (READ, "")]


@pytest.mark.parametrize(
    "forged",
    [
        SendGridSigner().post([event("delivered")]),
        replace(SIGNER.post([event("delivered")]), body=b"[]"),
        replace(SIGNER.post([]), headers={}),
        replace(SIGNER.post([]), headers=SIGNER.post([]).headers | {"x-twilio-email-event-webhook-timestamp": "1"}),
        replace(SIGNER.post([]), headers=SIGNER.post([]).headers | {"x-twilio-email-event-webhook-signature": "?"}),
    ],
)
async def test_what_sendgrid_has_not_signed_is_not_heard(forged: CallbackRequest) -> None:
    with pytest.raises(NotSigned):
        await of_sendgrid(forged)


async def test_without_an_event_key_sendgrid_is_not_heard() -> None:
    with pytest.raises(NotSigned, match="eventKey"):
        await read(SendGridKind(RULES), {"apiKey": "SG.key"}, SIGNER.post([event("delivered")]))


@pytest.mark.parametrize("key", ["", "nonsense", "bm9uc2Vuc2U=", SendGridSigner(ec.SECP384R1()).event_key])
def test_an_event_key_is_a_public_key_on_p_256(key: str) -> None:
    kind, fields = SendGridKind(RULES), {"from": "a@example.com"}
    kind.check(fields, {"apiKey": "SG.key", "eventKey": SIGNER.event_key})
    with pytest.raises(Invalid) as refused:
        kind.check(fields, {"apiKey": "SG.key", "eventKey": key})
    assert refused.value.field == "secret.eventKey"


async def test_a_server_of_ones_own_tells_of_one_message_or_of_many() -> None:
    at = "2026-12-24T13:59:00Z"
    told = [
        {"message": KEY, "state": "delivered", "at": at},
        {"id": 17, "state": "sent"},
        {"message": KEY, "state": "failed", "reason": "hard-bounce", "detail": "no ana@example.com here"},
        {"message": KEY, "state": "failed", "unknown": 1},
    ]
    many = await of_http(webhook(told, WHSEC))
    assert states(many) == [(DELIVERED, ""), (SENT, ""), (INVALID, "hard-bounce"), (FAILED, "undelivered")]
    assert many.at == AT
    assert many.news[1].provider_id == "17"
    assert many.news[2].detail == "no a…@example.com here"
    [one] = (await of_http(webhook({"state": "read"}, WHSEC, key=KEY))).news
    assert one == CallbackNews(key=KEY, state=READ)


async def test_another_library_signs_as_we_verify() -> None:
    body = json.dumps({"message": KEY, "state": "sent"})
    headers = {
        "webhook-id": "e",
        "webhook-timestamp": str(int(AT.timestamp())),
        "webhook-signature": Webhook(WHSEC).sign("e", AT, body),
    }
    assert states(await of_http(CallbackRequest(URL, headers, body.encode()))) == [(SENT, "")]


async def test_while_a_secret_is_replaced_both_are_good_and_calls_are_signed_with_both() -> None:
    for secret in (WHSEC, OTHER_WHSEC):
        assert states(await of_http(webhook({"state": "sent"}, secret, key=KEY), WHSEC, OTHER_WHSEC)) == [(SENT, "")]
    with pytest.raises(NotSigned):
        await of_http(webhook({"state": "sent"}, OTHER_WHSEC, key=KEY), WHSEC)


SIGNED = webhook({"state": "sent"}, WHSEC, key=KEY)


@pytest.mark.parametrize(
    "forged",
    [
        webhook({"state": "sent"}, OTHER_WHSEC, key=KEY),
        replace(SIGNED, body=b'{"state": "read"}'),
        replace(SIGNED, headers={}),
        replace(SIGNED, headers=SIGNED.headers | {"webhook-timestamp": "1"}),
        replace(SIGNED, headers=SIGNED.headers | {"webhook-timestamp": "now"}),
        replace(SIGNED, headers=SIGNED.headers | {"webhook-id": "evt_2"}),
        replace(SIGNED, headers=SIGNED.headers | {"webhook-signature": "v1,ünicode v1a,x"}),
    ],
)
async def test_what_a_server_has_not_signed_is_not_heard(forged: CallbackRequest) -> None:
    with pytest.raises(NotSigned):
        await of_http(forged)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"{}",
        b'{"state": "lost"}',
        b'{"state": "sent", "at": "2026-12-24"}',
        b'{"state": "failed", "reason": "because"}',
        b'[{"state": "sent"}, 1]',
        b"[" * 100_000,
        b"\xff",
    ],
)
async def test_what_is_signed_and_cannot_be_read_is_said(body: bytes) -> None:
    with pytest.raises(Unreadable):
        await of_http(webhook(body, WHSEC, key=KEY))
    if not body.startswith((b"[{", b"{")):
        with pytest.raises(Unreadable):
            await of_sendgrid(SIGNER.post(body))


async def test_a_callback_that_names_no_message_is_said() -> None:
    with pytest.raises(Unreadable, match="names no message"):
        await of_http(webhook(b'{"state": "delivered"}', WHSEC))


async def test_a_kind_without_callbacks_says_so() -> None:
    with pytest.raises(NotFound):
        await read(SandboxKind(RULES), {}, SIGNED)
