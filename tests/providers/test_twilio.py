"""The kind `twilio`: what an account must be made of, and what Twilio's codes mean."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, parse_qsl

import pytest
from aiohttp import web

from shared.core.errors import Invalid
from shared.messages.rules.answers import Answer, CallAccepted, CallRefused, LoginRefused, NotNow, Reason
from shared.providers import ProviderRules
from shared.providers.twilio import TwilioKind
from tests.drivers.http.receiver import calling, receiving
from tests.providers.accounts import TWILIO_SID
from tests.providers.fakes import FakeProcess
from tests.providers.rules import Rule

KIND = TwilioKind(ProviderRules(allowed_networks=("127.0.0.1/32",)))
FIELDS = {"accountSid": TWILIO_SID, "from": "+15005550006"}
SECRET = {"authToken": "t0ken"}
SID = "HX" + "2e" * 16
TEMPLATE = {"contentSid": SID, "contentVariables": {"1": 'Ana "A" O\'Neil', "day": "星期一"}}


async def answer_to(
    status: int, body: dict[str, Any], kind: TwilioKind = KIND, /, **changes: Any
) -> tuple[Answer, dict[str, list[str]]]:
    """What an answer of Twilio's comes to, and the form it was given to."""
    async with receiving() as twilio, calling() as outgoing:
        twilio.answer = lambda: web.Response(status=status, text=json.dumps(body))
        fields = {name: value for name, value in (FIELDS | changes).items() if value} | {"apiUrl": twilio.url + "/"}
        kind.check(fields, SECRET)
        provider = kind.open(fields, SECRET, outgoing, "c-1")
        answer = await provider.send({"text": "hi"}, "+6591234567", "m~1", lambda: True)
        return answer, parse_qs(twilio.received[0].body.decode())


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, 21_211, CallRefused(Reason.MALFORMED, "21211: no")),
        (400, 21_614, CallRefused(Reason.MALFORMED, "21614: no")),
        (400, 21_610, CallRefused(Reason.UNSUBSCRIBED, "21610: no")),
        (400, 21_606, CallRefused(Reason.REFUSED, "21606: no", "from")),
        (403, 21_608, CallRefused(Reason.REFUSED, "21608: no")),  # of this number, not of our login
        (400, 21_705, CallRefused(Reason.REFUSED, "21705: no", "messagingServiceSid")),
        (400, 21_999, CallRefused(Reason.REFUSED, "21999: no")),
        (400, 21_611, NotNow("21611: no", too_fast=True)),
        (400, 21_910, CallRefused(Reason.REFUSED, "21910: no")),
        (400, 63_003, CallRefused(Reason.UNREGISTERED, "63003: no")),
        (403, 63_007, CallRefused(Reason.REFUSED, "63007: no", "from")),  # of the sender's number, not of our login
        (400, 63_014, CallRefused(Reason.UNSUBSCRIBED, "63014: no")),
        (400, 63_016, CallRefused(Reason.REFUSED, "63016: no")),  # the window is closed, the address is alive
        (400, 63_018, NotNow("63018: no", too_fast=True)),
        (400, 63_024, CallRefused(Reason.UNREGISTERED, "63024: no")),
    ],
)
async def test_codes_of_the_request_say_more_than_the_status(status: int, code: int, expected: Answer) -> None:
    answer, _ = await answer_to(status, {"code": code, "message": "no"})
    assert answer == expected


async def test_codes_of_the_account_are_its_status() -> None:
    answer, _ = await answer_to(403, {"code": 20_005, "message": "Account not active"})
    assert isinstance(answer, LoginRefused)
    answer, _ = await answer_to(404, {"code": 20_404, "message": "The requested resource was not found"})
    assert isinstance(answer, CallRefused) and answer.field == "accountSid"


async def test_its_id_is_the_messages() -> None:
    answer, form = await answer_to(201, {"sid": "SM1", "code": 21_211})
    assert answer == CallAccepted("SM1")
    assert form == {"To": ["+6591234567"], "From": ["+15005550006"], "Body": ["hi"]}  # without a public URL no callback


async def test_no_callback_is_asked_for_at_an_address_that_twilio_refuses() -> None:
    laptop = TwilioKind(ProviderRules(allowed_networks=("127.0.0.1/32",), public_url="http://127.0.0.1:8080"))
    _, form = await answer_to(201, {"sid": "SM1"}, laptop)
    assert "StatusCallback" not in form


async def test_a_messaging_service_stands_in_for_a_sender() -> None:
    service = "MG" + "0" * 32
    _, form = await answer_to(201, {}, **{"from": None, "messagingServiceSid": service})
    assert form["MessagingServiceSid"] == [service] and "From" not in form


@pytest.mark.parametrize("to", ["+6591234567", "whatsapp:+6591234567"])
async def test_both_addresses_of_whatsapp_have_its_scheme(fakes: Mapping[str, FakeProcess], to: str) -> None:
    twilio = fakes["twilio_fake"]
    await twilio.answer(always=Rule(201, json.dumps({"sid": "SM1"})))
    fields = FIELDS | {"from": "whatsapp:+14155238886", "apiUrl": twilio.url}
    async with calling(allowed_networks=("127.0.0.1/32",)) as outgoing:
        provider = KIND.open(fields, SECRET, outgoing, "c-1")
        for content in ({"text": "hi"}, TEMPLATE, {"contentSid": SID}):
            KIND.check_content(content)
            assert await provider.send(content, to, "m~1", lambda: True) == CallAccepted("SM1")
        empty = TEMPLATE | {"contentVariables": {"1": ""}}
        answer = await provider.send(empty, to, "m~1", lambda: True)
        assert answer == CallRefused(Reason.REFUSED, "21656: The Content Variables parameter is invalid.")
        by_sms = KIND.open(FIELDS | {"apiUrl": twilio.url}, SECRET, outgoing, "c-1")
        assert await by_sms.send({"text": "hi"}, to, "m~1", lambda: True) == CallAccepted("SM1")
    forms = [dict(parse_qsl(call.body)) for call in (await twilio.tell()).arrived]
    both = {"From": "whatsapp:+14155238886", "To": "whatsapp:+6591234567"}
    assert forms[0] == both | {"Body": "hi"}
    assert forms[1] == both | {
        "ContentSid": SID,
        "ContentVariables": '{"1":"Ana \\"A\\" O\'Neil","day":"\u661f\u671f\u4e00"}',
    }
    assert forms[2] == both | {"ContentSid": SID}
    assert forms[4] == {"From": "+15005550006", "To": "+6591234567", "Body": "hi"}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"accountSid": "AC1"}, "accountSid"),
        ({"accountSid": TWILIO_SID + "/../x"}, "accountSid"),
        ({"from": "not a number!"}, "from"),
        ({"from": "Carillon Ltd too long"}, "from"),
        ({"from": None}, "from"),
        ({"messagingServiceSid": "MG" + "0" * 32}, "from"),
        ({"from": None, "messagingServiceSid": "MG1"}, "messagingServiceSid"),
        ({"apiUrl": "http://10.0.0.1"}, "apiUrl"),
        ({"region": "ie1"}, "region"),
    ],
)
def test_an_account_that_cannot_be(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        KIND.check(FIELDS | changes, SECRET)
    assert caught.value.field == field


@pytest.mark.parametrize("sender", ["+6591234567", "12345", "Carillon", "whatsapp:+14155238886"])
def test_senders(sender: str) -> None:
    KIND.check(FIELDS | {"from": sender}, SECRET)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "text"),
        ({"text": " "}, "text"),
        ({"text": "x" * 1_601}, "text"),
        ({"text": "x", "html": "x"}, "html"),
        ({"text": "x", "contentSid": SID}, "text"),
        ({"contentSid": "HX1"}, "contentSid"),
        ({"contentSid": "{{sid}}"}, "contentSid"),
        ({"contentSid": None}, "contentSid"),
        ({"text": "x", "contentVariables": {"1": "a"}}, "contentSid"),
        ({"contentSid": SID, "contentVariables": '{"1": "a"}'}, "contentVariables"),
        ({"contentSid": SID, "contentVariables": {"first name": "a"}}, "contentVariables"),
        ({"contentSid": SID, "contentVariables": {"x" * 17: "a"}}, "contentVariables"),
        ({"contentSid": SID, "contentVariables": {"1": " "}}, "contentVariables"),
        ({"contentSid": SID, "contentVariables": {"1": 1}}, "contentVariables"),
        ({"contentSid": SID, "contentVariables": {str(n): "a" for n in range(101)}}, "contentVariables"),
    ],
)
def test_a_template_that_cannot_be(body: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        KIND.check_content(body)
    assert caught.value.field == field
