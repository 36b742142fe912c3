"""Callbacks over the API: who has signed is heard, below the public URL; nobody else is."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote

import httpx
import pytest
import pytest_asyncio
from aiohttp import web
from msgspec.structs import replace

from services.api.messages.callbacks import AT_ONCE
from shared.drivers.http import Answer, Call, PostedAnswer, Posting, Unreachable
from shared.drivers.http.client import HttpOutgoing
from shared.drivers.secrets import KeyRing, fresh_key
from shared.messages.rules.credentials import Credential
from shared.messages.rules.ledger import Message, MessageState, entry_id, write_ahead
from shared.messages.store_ledger import EntryChange, WriteResult
from shared.providers.base import MOST_BYTES, CallbackRequest
from shared.providers.ses import tag_of
from shared.runtime.settings import ApiSettings
from tests.drivers.http.receiver import calling, receiving
from tests.providers.accounts import WHSEC
from tests.providers.callbacks import (
    CERTIFICATE_URL,
    CREDENTIAL,
    PUBLIC_URL,
    SNS,
    TOKEN,
    TOPIC,
    SendGridSigner,
    SnsSigner,
    twilio,
    webhook,
)
from tests.samples import sample
from tests.services.api.client import ADMIN, Client, Reply
from tests.services.api.conftest import House
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

SIGNER = SendGridSigner()
APP = "0190b5a2-0000-7000-8000-0000000000aa"
OTHER_APP = "0190b5a2-0000-7000-8000-0000000000bb"
_serials = itertools.count()


@dataclass
class Receiver:
    """An API that providers call, as strangers do."""

    house: House
    client: Client

    async def credential(
        self,
        kind: str,
        secret: dict[str, str],
        *,
        id_: str = "",
        fields: dict[str, Any] | None = None,
        app_id: str = APP,
    ) -> str:
        number = next(_serials)
        at = self.house.clock.now()
        id_ = id_ or f"0190b5a2-0000-7000-8000-{number + 0x1000:012x}"
        credential = Credential(
            id=id_, app_id=app_id, name=f"c{number}", kind=kind, fields=fields or {}, rate=10, max_in_flight=20,
            test_recipient="t@example.com", created_by="a", created_at=at, updated_at=at,
            secret=self.house.servers.key_ring.seal(secret, id_) if secret else "", fingerprint="f",
        )  # fmt: skip
        assert await self.house.store.credentials.add(credential)
        return id_

    async def message(self, credential_id: str) -> str:
        """The key of a message that is being called."""
        blank = Message(
            id=entry_id("callbacks", 0, next(_serials)), app_id=APP, credential_id=credential_id, to="ana@example.com"
        )
        entry = write_ahead(blank, owner="w1", until=self.house.clock.now())
        assert await self.house.store.messages.fold([EntryChange(None, entry)]) is WriteResult.DONE
        return f"{entry.id}~1"

    async def state(self, key: str) -> MessageState:
        entry = await self.house.store.messages.get(key.partition("~")[0])
        assert entry is not None
        return entry.state

    async def tell(self, credential_id: str, request: CallbackRequest, *, query: str = "") -> Reply:
        path = f"/callbacks/{credential_id}" + (f"/{quote(request.message)}" if request.message else "") + query
        return await self.client.send("POST", path, request.body, headers=request.headers)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def receiver(house: House) -> Receiver:
    await house.store.messages.setup()
    app = house.build(ApiSettings(first_admin=ADMIN, public_url=PUBLIC_URL))
    return Receiver(house, Client(app, {}, "203.0.113.9"))


def told(key: str, status: str = "delivered") -> CallbackRequest:
    return twilio({"MessageSid": "SM1", "MessageStatus": status, "To": "+6591234567"}, key=key)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def by_twilio(receiver: Receiver) -> str:
    return await receiver.credential("twilio", {"authToken": TOKEN}, id_=CREDENTIAL)


async def test_a_provider_tells_of_a_message_that_stands_in_the_url(receiver: Receiver, by_twilio: str) -> None:
    key = await receiver.message(by_twilio)
    for _ in range(2):
        reply = await receiver.tell(by_twilio, told(key))
        assert (reply.status, reply.body) == (204, b"")
        assert await receiver.state(key) is MessageState.DELIVERED
    assert (await receiver.tell(by_twilio, told("nobody~1"))).status == 204


async def test_what_is_forged_or_came_to_another_url_changes_nothing(receiver: Receiver, by_twilio: str) -> None:
    key, other = await receiver.message(by_twilio), await receiver.message(by_twilio)
    genuine = told(key)
    forged = [
        (genuine.body, genuine.headers | {"x-twilio-signature": "AAAA"}, key, ""),
        (genuine.body, {}, key, ""),
        (genuine.body + b"&x=1", genuine.headers, key, ""),
        (genuine.body, genuine.headers, other, ""),
        (genuine.body, genuine.headers, "", ""),
        (genuine.body, genuine.headers, key, "?x=1"),
    ]
    before = sample("callbacks_total", kind="twilio", outcome="refused")
    for body, headers, message, query in forged:
        request = CallbackRequest("", headers, body, message)
        reply = await receiver.tell(by_twilio, request, query=query)
        assert (reply.status, reply.headers["content-type"]) == (401, "application/problem+json")
        assert TOKEN.encode() not in reply.body
    assert {await receiver.state(key), await receiver.state(other)} == {MessageState.SENDING}
    assert sample("callbacks_total", kind="twilio", outcome="refused") == before + len(forged)


async def test_events_are_signed_and_young_ones_of_nobody_come_again(receiver: Receiver) -> None:
    secret = {"apiKey": "SG.key", "eventKey": SIGNER.event_key}
    credential_id, now = await receiver.credential("sendgrid", secret), receiver.house.clock.now()
    key = await receiver.message(credential_id)
    events = [
        {"event": "delivered", "email": "ana@example.com", "timestamp": int(now.timestamp()), "carillon_message": each}
        for each in ("nobody~1", key)
    ]
    names = ("stored", "early", "skipped")
    before = [sample("callbacks_total", kind="sendgrid", outcome=name) for name in names]
    reply = await receiver.tell(credential_id, SIGNER.post(events, at=now))
    assert (reply.status, reply.headers["retry-after"]) == (503, "2")
    assert await receiver.state(key) is MessageState.DELIVERED
    receiver.house.clock.advance(601)
    assert (await receiver.tell(credential_id, SIGNER.post(events, at=now))).status == 204
    after = [sample("callbacks_total", kind="sendgrid", outcome=name) for name in names]
    assert after == [count + 1 for count in before]


async def test_whom_nobody_knows_and_who_tells_nothing_are_not_found(receiver: Receiver, by_twilio: str) -> None:
    sandbox = await receiver.credential("sandbox", {})
    gone = "0190b5a2-0000-7000-8000-0000000000ff"
    for credential_id in (sandbox, gone, "nonsense", by_twilio[:-1]):
        assert (await receiver.tell(credential_id, told("m~1"))).status == 404
    assert (await receiver.client.get(f"/callbacks/{by_twilio}")).status == 405


async def test_what_is_too_large_is_refused(receiver: Receiver, by_twilio: str) -> None:
    large = CallbackRequest("", {}, b"x" * (MOST_BYTES + 1))
    assert (await receiver.tell(by_twilio, large)).status == 413
    assert (await receiver.tell(by_twilio, CallbackRequest("", {}, b"x" * MOST_BYTES))).status == 401


async def test_signed_nonsense_is_a_422(receiver: Receiver) -> None:
    credential_id = await receiver.credential("http", {"signingSecret": WHSEC})
    reply = await receiver.tell(credential_id, webhook(b'{"state": "lost"}', WHSEC))
    assert reply.status == 422
    assert WHSEC.encode() not in reply.body


async def test_a_replaced_secret_signs_no_more(receiver: Receiver) -> None:
    credential_id = await receiver.credential("http", {"signingSecret": WHSEC})
    key, store = await receiver.message(credential_id), receiver.house.store
    request = webhook({"state": "sent"}, WHSEC, key=key)
    assert (await receiver.tell(credential_id, request)).status == 204
    present = await store.credentials.get(credential_id)
    assert present is not None
    other = "whsec_" + "QkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJC"
    sealed = receiver.house.servers.key_ring.seal({"signingSecret": other}, credential_id)
    assert await store.credentials.change(present, present.with_secret({}, sealed, "f2")) is not None
    assert (await receiver.tell(credential_id, request)).status == 401
    assert (await receiver.tell(credential_id, webhook({"state": "sent"}, other, key=key))).status == 204


async def test_while_no_key_opens_a_secret_the_provider_comes_again(receiver: Receiver) -> None:
    credential_id = await receiver.credential("http", {"signingSecret": WHSEC})
    request = webhook({"state": "sent"}, WHSEC, key="m~1")
    stranger = Client(receiver.house.build(ApiSettings(first_admin=ADMIN), key_ring=KeyRing([fresh_key()])), {})
    path = f"/callbacks/{credential_id}/m~1"
    assert (await stranger.send("POST", path, request.body, headers=request.headers)).status == 503


class AtHome:
    """Our client, for which all of Amazon stands on this machine."""

    def __init__(self, outgoing: HttpOutgoing, amazon: str) -> None:
        self._outgoing = outgoing
        self._amazon = amazon
        self.called: list[str] = []

    async def call(self, request: Call) -> Answer:
        return await self._outgoing.call(request)

    async def post(self, posting: Posting) -> PostedAnswer:
        self.called.append(posting.url)
        assert posting.url.startswith(SNS)
        return await self._outgoing.post(replace(posting, url=posting.url.replace(SNS, self._amazon)))

    async def close(self) -> None:
        await self._outgoing.close()


async def test_a_topic_is_confirmed_and_its_events_are_heard(receiver: Receiver) -> None:
    signer, secret = SnsSigner(), {"password": "hush"}
    fields = {"host": "email-smtp.eu-west-1.amazonaws.com", "from": "a@example.com", "user": "u", "topicArns": [TOPIC]}
    credential_id = await receiver.credential("ses", secret, fields=fields)
    key = await receiver.message(credential_id)
    mail = {"messageId": "0102-ses", "tags": {"carillon_message": [tag_of(key)]}}
    delivered = signer.notification({"eventType": "Delivery", "mail": mail})
    async with receiving() as amazon, calling() as outgoing:
        at_home = AtHome(outgoing, amazon.url)
        app = receiver.house.build(ApiSettings(first_admin=ADMIN, public_url=PUBLIC_URL), provider_outgoing=at_home)
        here = Receiver(receiver.house, Client(app, {}, "203.0.113.9"))
        assert (await here.tell(credential_id, delivered)).status == 503  # the certificate is none
        amazon.answer = lambda: web.Response(body=signer.certificate)
        forged = SnsSigner().confirmation(SigningCertURL=CERTIFICATE_URL.replace("-0", "-1"))
        assert (await here.tell(credential_id, forged)).status == 401
        others = signer.confirmation(topic=TOPIC + "2", SigningCertURL=CERTIFICATE_URL.replace("-0", "-1"))
        assert (await here.tell(credential_id, others)).status == 401
        confirmation = signer.confirmation(SigningCertURL=CERTIFICATE_URL.replace("-0", "-1"))
        assert (await here.tell(credential_id, confirmation)).status == 204
        assert at_home.called[-1] == f"{SNS}/?Action=ConfirmSubscription&TopicArn={TOPIC}&Token=2336412f37"
        amazon.answer = lambda: web.Response(status=500)
        assert (await here.tell(credential_id, confirmation)).status == 503
        by_the_known_key = signer.notification(
            {"eventType": "Delivery", "mail": mail}, SigningCertURL=CERTIFICATE_URL.replace("-0", "-1")
        )
        assert (await here.tell(credential_id, by_the_known_key)).status == 204
    assert await receiver.state(key) is MessageState.DELIVERED


async def test_slow_bodies_shut_out_nobody(receiver: Receiver, by_twilio: str) -> None:
    """Anybody may know the ids of some credentials."""
    go_on = asyncio.Event()
    sent = [asyncio.Event() for _ in range(AT_ONCE)]

    async def slow(began: asyncio.Event) -> AsyncIterator[bytes]:
        began.set()
        yield b"x"
        await go_on.wait()

    flooded = [await receiver.credential("http", {"signingSecret": WHSEC}) for _ in range(2)]
    keys = [await receiver.message(id_) for id_ in (by_twilio, *flooded)]
    transport = httpx.ASGITransport(cast(Any, receiver.client.app))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as browser:
        flood = [
            asyncio.create_task(browser.post(f"/callbacks/{flooded[number % 2]}", content=slow(began)))
            for number, began in enumerate(sent)
        ]
        await until(lambda: all(began.is_set() for began in sent))
        assert (await receiver.tell(by_twilio, told(keys[0]))).status == 204
        for id_, key in zip(flooded, keys[1:], strict=True):
            assert (await receiver.tell(id_, webhook({"state": "sent"}, WHSEC, key=key))).status == 204
        go_on.set()
        statuses = {reply.status_code for reply in await asyncio.gather(*flood)}
    assert statuses == {401, 503}


class Hanging(AtHome):
    """Amazon tells nothing, for now."""

    def __init__(self, outgoing: HttpOutgoing) -> None:
        super().__init__(outgoing, "")
        self.go_on = asyncio.Event()

    async def post(self, posting: Posting) -> PostedAnswer:
        self.called.append(posting.url)
        await self.go_on.wait()
        raise Unreachable("nothing came")


async def test_a_flood_by_one_app_leaves_the_others_room(receiver: Receiver, by_twilio: str) -> None:
    """Whoever it is that signs: what a provider says to our questions may take seconds."""
    fields = {"host": "email-smtp.eu-west-1.amazonaws.com", "from": "a@example.com", "user": "u", "topicArns": [TOPIC]}
    ours = [await receiver.credential("ses", {"password": "hush"}, fields=fields, app_id=OTHER_APP) for _ in range(2)]
    request, key = SnsSigner().notification({}), await receiver.message(by_twilio)
    async with calling() as outgoing:
        amazon = Hanging(outgoing)
        app = receiver.house.build(ApiSettings(first_admin=ADMIN, public_url=PUBLIC_URL), provider_outgoing=amazon)
        here = Receiver(receiver.house, Client(app, {}, "203.0.113.9"))
        flood = [asyncio.create_task(here.tell(ours[number % 2], request)) for number in range(AT_ONCE)]
        await until(lambda: sum(one.done() for one in flood) >= AT_ONCE // 2)
        refused = [one.result().status for one in flood if one.done()]
        assert refused == [503] * (AT_ONCE // 2)
        assert (await here.tell(by_twilio, told(key))).status == 204
        amazon.go_on.set()
        assert {reply.status for reply in await asyncio.gather(*flood)} == {503}
    assert await receiver.state(key) is MessageState.DELIVERED
