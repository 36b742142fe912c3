"""Servers are told the domain that a mail address names, and no other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.mail import address_in_ascii, domain_in_ascii, normal_domain


@given(st.emails())
def test_an_address_in_ascii_is_told_as_it_is(address: str) -> None:
    if "@xn--" not in address.lower() and ".xn--" not in address.lower():
        assert address_in_ascii(address) == address


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("ana@straße.de", "ana@xn--strae-oqa.de"),
        ("ana@bücher.de", "ana@xn--bcher-kva.de"),
        ("ana@डेटामेल.भारत", "ana@xn--c2bd4bq2d9bd.xn--h2brj9c"),
        ("ana@localhost", "ana@localhost"),
        ("jörg@example.com", None),
        ("ana@mail_host.internal", "ana@mail_host.internal"),
        ("ana@ü_b.de", None),
        ("ana@-x.de", None),
        ("ana@", None),
        (f"ana@{'x' * 64}.de", None),
    ],
)
def test_a_domain_is_told_by_idna_2008(address: str, told: str | None) -> None:
    assert address_in_ascii(address) == told


@given(st.text(st.characters(codec="utf-8"), max_size=12))
def test_one_form_for_people_and_one_for_servers(domain: str) -> None:
    told, normal = domain_in_ascii(domain), normal_domain(domain)
    assert (told is None) == (normal is None)
    if told is not None and normal is not None:
        assert normal_domain(told) == normal == normal_domain(normal)
        assert domain_in_ascii(normal) == told.lower()
