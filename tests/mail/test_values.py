"""What a mail may be made of, whichever way it goes."""

from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.errors import Invalid
from shared.mail import MailSender, mask_addresses


@pytest.mark.parametrize(
    "end", ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\0", "\ud800"]
)
def test_a_sender_cannot_bring_a_header(end: str) -> None:
    with pytest.raises(Invalid) as caught:
        MailSender(f"Carillon{end}Bcc: eve@example.com", "a@example.com")
    assert caught.value.field == "mail.sender_name"
    with pytest.raises(Invalid) as caught:
        MailSender("Carillon", f"a@example.com{end}Bcc:eve@example.com")
    assert caught.value.field == "mail.sender_address"


@pytest.mark.parametrize(
    "address", ["", "carillon", "é@example.com", "a@bücher.example", "a@example.com, b@example.com"]
)
def test_a_sender_has_one_address_in_ascii(address: str) -> None:
    with pytest.raises(Invalid):
        MailSender("Carillon", address)


@given(st.text(), st.emails(), st.text())
def test_no_name_of_a_mailbox_shows(before: str, address: str, after: str) -> None:
    name = address.partition("@")[0]
    if len(name) > 1:
        assert address not in mask_addresses(f"{before} <{address}> {after}")


@pytest.mark.alone
def test_an_endless_text_is_cut_before_it_takes_long() -> None:
    began = monotonic()
    assert len(mask_addresses("x" * 10**7)) == 500
    assert monotonic() - began < 10


def test_masks() -> None:
    text = "5.1.1 <ana.maria@example.com>: no\nsuch user, nor bob@example.org"
    assert mask_addresses(text) == "5.1.1 <a…@example.com>: no?such user, nor b…@example.org"
