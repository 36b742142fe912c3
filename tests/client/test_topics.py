"""`client.topics` against the real API, and `verify` beside the product's own signing."""

import base64
import secrets

import pytest

from carillon import AsyncCarillon, Event, Invalid, NotFound, NotVerified, verify
from carillon.bus import ITEMS
from shared.drivers.http.signing import webhook_headers

module = pytest.mark.asyncio(loop_scope="module")
native = pytest.mark.native

PAID = Event(type="order.paid", url="https://shop.example.com/orders/1")


@native
@module
async def test_a_topic_is_put_listed_published_on_and_deleted(client: AsyncCarillon) -> None:
    name = f"orders-{secrets.token_hex(6)}"
    made = await client.topics.put(name, description="What is ordered.")
    assert (made.name, made.description, made.events) == (name, "What is ordered.", 0)
    assert made.owner is not None
    assert [(await client.topics.put(name, private=private)).private for private in (True, False)] == [True, False]
    assert (await client.topics.put(name, owner=None)).owner is None
    assert name in [each.name async for each in client.topics.list(page_size=1)]
    result = await client.topics.publish(name, PAID)
    assert result.accepted and result.id
    assert (await client.topics.get(name)).owner == made.owner
    assert (await client.topics.pressure()).log_lag >= 1
    with pytest.raises(Invalid) as refused:
        await client.topics.publish(name, Event(type="No", url=PAID.url))
    assert refused.value.field == "type"
    await client.topics.delete(name)
    with pytest.raises(NotFound):
        await client.topics.get(name)


@native
@module
async def test_many_are_published_in_chunks_with_a_result_each(client: AsyncCarillon) -> None:
    name, bad = f"orders-{secrets.token_hex(6)}", ITEMS + 3
    many = (
        Event(type="No" if number == bad else "paid", url=PAID.url, id=f"e{number}", data={"n": number})
        for number in range(ITEMS + 10)
    )
    results = [each async for each in client.topics.publish_many(name, many)]
    assert [each.index for each in results] == [*range(ITEMS + 10)]
    assert [each.index for each in results if not each.accepted] == [bad]
    assert [each.id for each in results if each.accepted] == [f"e{each}" for each in range(ITEMS + 10) if each != bad]


SECRET, OTHER = (f"whsec_{base64.b64encode(key * 32).decode()}" for key in (b"a", b"b"))
BODY, AT = b'[{"topic":"orders"}]', 1_800_000_000
SIGNED = webhook_headers("d1", AT, BODY, SECRET)


def test_a_receiver_believes_what_is_signed_with_one_of_its_secrets() -> None:
    capitals = {name.title(): text for name, text in SIGNED.items()}
    for headers in (SIGNED, capitals, webhook_headers("d1", AT, BODY, OTHER, SECRET)):
        for secrets_known in (SECRET, [SECRET], [OTHER, SECRET]):
            assert verify(BODY, headers, secrets_known, now=AT + 300) == "d1"


@pytest.mark.parametrize(
    ("body", "changed", "known", "now"),
    [
        (BODY + b" ", {}, SECRET, AT),
        (BODY, {"webhook-id": "d2"}, SECRET, AT),
        (BODY, {"webhook-id": ""}, SECRET, AT),
        (BODY, {"webhook-timestamp": str(AT + 1)}, SECRET, AT),
        (BODY, {"webhook-timestamp": "no"}, SECRET, AT),
        (BODY, {"webhook-signature": ""}, SECRET, AT),
        (BODY, {"webhook-signature": SIGNED["webhook-signature"].removeprefix("v1,")}, SECRET, AT),
        (BODY, {"webhook-signature": "v1,\u00fcnicode v1,"}, SECRET, AT),
        (BODY, {}, OTHER, AT),
        (BODY, {}, [], AT),
        (BODY, {"webhook-id": "d1\udcff"}, SECRET, AT),  # a byte that is no text, as many servers hand it on
        (BODY, {"webhook-signature": "v1,\udcff"}, SECRET, AT),
        (BODY, {}, SECRET, AT + 301),
        (BODY, {}, SECRET, AT - 301),
    ],
)
def test_a_receiver_believes_nothing_else(
    body: bytes, changed: dict[str, str], known: str | list[str], now: float
) -> None:
    with pytest.raises(NotVerified):
        verify(body, SIGNED | changed, known, now=now)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_?"])
def test_what_is_no_secret_is_a_mistake_of_the_receivers(secret: str) -> None:
    with pytest.raises(ValueError, match="a secret must be whsec_"):
        verify(BODY, SIGNED, secret, now=AT)
