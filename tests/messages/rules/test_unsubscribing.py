"""A token says who wants no more, and nobody can make one without a key."""

import hashlib
import hmac
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.messages.rules.answers import Channel
from shared.messages.rules.recipients import read_address
from shared.messages.rules.suppressions import Listing, UnsubscribeTokens, listing_of

OLD, NEW, FOREIGN = b"the old key", b"the new key", b"somebody else's"
ANN = listing_of("app-1", Channel.MAIL, "ann@example.com", "news")


@given(st.text(), st.sampled_from(Channel), st.text(), st.text(max_size=200))
def test_a_token_says_whose_it_is(app_id: str, channel: Channel, address: str, list_name: str) -> None:
    listing = listing_of(app_id, channel, address, list_name)
    token = UnsubscribeTokens([NEW]).make(listing)
    if len(token) <= 2_048:
        assert UnsubscribeTokens([NEW, OLD]).read(token) == listing
    assert re.fullmatch(r"[A-Za-z0-9_-]+", token)


def test_a_token_that_was_made_today_is_read_by_every_later_version() -> None:
    token = "oFQ5QJnf7XrQ6tjJT6phyZSlYXBwLTGkbWFpbMQQvpretxMIQKajbkPCdpeLAKRuZXdz"
    assert UnsubscribeTokens([NEW]).make(ANN) == token
    assert UnsubscribeTokens([NEW]).read(token) == ANN


def test_a_token_may_end_in_any_way() -> None:
    tokens = UnsubscribeTokens([NEW])
    listings = [listing_of("app-1", Channel.MAIL, f"{number}@example.com", "x" * (number % 5)) for number in range(500)]
    assert [tokens.read(tokens.make(listing)) for listing in listings] == listings


def test_what_is_longer_than_any_token_is_not_looked_at() -> None:
    tokens = UnsubscribeTokens([NEW])
    sizes = {size: tokens.make(listing_of("app", Channel.MAIL, "a", "x" * size)) for size in range(1_450, 1_500)}
    assert {len(token) <= 2_048 for token in sizes.values()} == {True, False}
    assert all((tokens.read(token) is not None) == (len(token) <= 2_048) for token in sizes.values())


def test_a_link_that_is_long_out_works_when_a_new_key_comes_first() -> None:
    token = UnsubscribeTokens([OLD]).make(ANN)
    assert UnsubscribeTokens([NEW, OLD]).read(token) == ANN
    assert UnsubscribeTokens([NEW]).read(token) is None
    assert UnsubscribeTokens([NEW, OLD]).make(ANN) == UnsubscribeTokens([NEW]).make(ANN) != token


def test_no_token_can_be_changed() -> None:
    tokens = UnsubscribeTokens([NEW, OLD])
    token = tokens.make(ANN)
    for at in range(len(token)):
        for other in "AB_z":
            changed = token[:at] + other + token[at + 1 :]
            assert changed == token or tokens.read(changed) is None
        assert tokens.read(token[:at]) is None
    assert [tokens.read(f"{token}{more}") for more in ("A", "=", "==", "\n", "AAAA", "é")] == [None] * 6
    assert tokens.read(f"{token[:-4]}\n{token[-4:]}") is None


@given(st.text(max_size=60) | st.text(st.sampled_from("ABab01-_="), max_size=200))
def test_what_is_no_token_is_none(text: str) -> None:
    assert UnsubscribeTokens([NEW]).read(text) is None


@pytest.mark.parametrize(
    "content", [b"", b"\x90", msgspec.msgpack.encode(["app", "pigeon", b"", ""]), msgspec.msgpack.encode([1] * 5)]
)
def test_what_is_signed_and_no_subscription_is_none(content: bytes) -> None:
    tokens = UnsubscribeTokens([NEW])
    signing = hmac.digest(NEW, b"carillon unsubscribing 1\n", hashlib.sha256)
    signature = hmac.digest(signing, content, hashlib.sha256)[:16]
    token = msgspec.json.encode(signature + content).decode().strip('"').translate(str.maketrans("+/", "-_"))
    assert tokens.read(token.rstrip("=")) is None


def test_a_token_shows_no_address_and_needs_none() -> None:
    token = UnsubscribeTokens([NEW]).make(ANN)
    read = UnsubscribeTokens([NEW]).read(token)
    assert read is not None
    assert read.suppression_id == listing_of("app-1", Channel.MAIL, "ann@example.com", "news").suppression_id
    assert b"ann" not in msgspec.msgpack.encode(read)


def test_a_suppression_is_of_one_app_channel_address_and_list() -> None:
    ways: list[Listing] = [
        ANN,
        listing_of("app-2", Channel.MAIL, "ann@example.com", "news"),
        listing_of("app-1", Channel.OTHER, "ann@example.com", "news"),
        listing_of("app-1", Channel.MAIL, "Ann@example.com", "news"),
        listing_of("app-1", Channel.MAIL, "ann@example.com"),
    ]
    assert len({way.suppression_id for way in ways}) == len(ways)
    assert len({way.address_hash for way in ways}) == 3
    assert ANN.suppression_id == "4528dbd73bde91353a90fc85c79b2c73", "what is stored is found by every later version"


def test_spellings_of_an_address_are_one_subscription() -> None:
    spelled = [read_address(text, Channel.MAIL) for text in (" ann@EXAMPLE.com", "ann@example.com")]
    assert {listing_of("app", Channel.MAIL, str(address)) for address in spelled} == {
        listing_of("app", Channel.MAIL, "ann@example.com")
    }


def test_without_a_key_there_are_no_tokens() -> None:
    with pytest.raises(ValueError, match="key"):
        UnsubscribeTokens([])
