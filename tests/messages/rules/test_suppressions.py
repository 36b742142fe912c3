"""Who gets nothing more, and of what: bars hold for everything, unsubscriptions for what people can do without."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.errors import Invalid
from shared.messages.rules.answers import Channel, Reason
from shared.messages.rules.suppressions import (
    EVERYTHING,
    Suppression,
    SuppressionCause,
    UnsubscribeTokens,
    check_list,
    hash_address,
    listing_of,
    reason_of,
    strongest,
    suppress_address,
    suppression_id,
    unsubscribe_listing,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
BARS = {SuppressionCause.BOUNCE, SuppressionCause.COMPLAINT, SuppressionCause.HAND}

names = st.text(max_size=20)
lists = st.sampled_from([EVERYTHING, "news", "offers"])
suppressions = st.builds(
    lambda cause, list_name: suppress_address(
        "app", Channel.MAIL, "ann@example.com", cause=cause, at=NOW, list_name=list_name
    ),
    st.sampled_from(SuppressionCause),
    lists,
)


@given(st.lists(suppressions, max_size=4), lists, st.booleans())
def test_a_message_goes_unless_something_of_its_list_or_of_all_is_against_it(
    found: list[Suppression], list_name: str, transactional: bool
) -> None:
    against = {each.cause for each in found if each.list in (EVERYTHING, list_name)}
    if against & BARS:
        expected: Reason | None = Reason.SUPPRESSED
    elif against and not transactional:
        expected = Reason.UNSUBSCRIBED
    else:
        expected = None
    assert reason_of(found, list_name=list_name, transactional=transactional) is expected


@given(st.lists(suppressions, max_size=4))
def test_the_strongest_decides_as_all_do(found: list[Suppression]) -> None:
    deciding = strongest([each for each in found if each.holds_for("news")])
    alone = [] if deciding is None else [deciding]
    for transactional in (True, False):
        asked = [reason_of(all_of, list_name="news", transactional=transactional) for all_of in (found, alone)]
        assert asked[0] is asked[1]


@given(names, st.sampled_from(Channel), names, names)
def test_a_token_and_a_look_up_come_to_one_id(app_id: str, channel: Channel, address: str, list_name: str) -> None:
    tokens = UnsubscribeTokens([b"key"])
    listing = tokens.read(tokens.make(listing_of(app_id, channel, address, list_name)))
    assert listing is not None
    by_link = unsubscribe_listing(listing, at=NOW)
    by_hand = suppress_address(
        app_id, channel, address, cause=SuppressionCause.UNSUBSCRIBE, at=NOW, list_name=list_name
    )
    assert by_link.id == by_hand.id == suppression_id(app_id, channel, address, list_name)
    assert by_link.address_hash == by_hand.address_hash == hash_address(app_id, address)
    assert (by_link.address, by_hand.address) == ("", address)


def test_only_an_unsubscription_says_that_somebody_has_unsubscribed() -> None:
    made = {
        cause: suppress_address("app", Channel.SMS, "+6591234567", cause=cause, at=NOW) for cause in SuppressionCause
    }
    assert {cause for cause, each in made.items() if each.unsubscribed_at == NOW} == {SuppressionCause.UNSUBSCRIBE}
    assert {cause for cause, each in made.items() if each.is_bar} == BARS


def test_a_log_shows_nobodys_address() -> None:
    suppression = suppress_address("app", Channel.MAIL, "ann@example.com", cause=SuppressionCause.HAND, at=NOW)
    assert "ann" not in repr(suppression)


@pytest.mark.parametrize("name", ["", "news", "Ofertas de otoño", "Caf\u00e9", "x" * 100])
def test_what_a_list_can_be_called(name: str) -> None:
    check_list(name)


@pytest.mark.parametrize("name", [" news", "news ", "a\nb", "a\0b", "x" * 101, "\u200e", "Cafe\u0301"])
def test_what_no_list_is_called(name: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_list(name)
    assert refused.value.field == "list"
