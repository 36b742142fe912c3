"""What may be shown of what a provider said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.providers.base import tell


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("user ana@example.com is gone", "user a…@example.com is gone"),
        ("<bob.b@example.org> 550 5.1.1", "<b…@example.org> 550 5.1.1"),
        ("'+6591234567' is no number", "'…67' is no number"),
        ("to 91 234-567, code 21211", "to …67, code 21211"),
        ("see SM0123456789abcdef0123", "see SM0123456789abcdef0123"),
        ("line one\r\nline two\0", "line one??line two?"),
    ],
)
def test_addresses_are_masked_whosever_they_are(said: str, shown: str) -> None:
    assert tell(said) == shown


SECRETS = st.text(st.characters(codec="utf-8", categories=["L", "N", "P"]), min_size=8, max_size=40)


@given(SECRETS, st.text(max_size=50), st.text(max_size=700))
def test_a_secret_is_hidden_wherever_it_stands(secret: str, before: str, behind: str) -> None:
    assert secret not in tell(f"{before}{secret}{behind}", secrets=[secret])


@given(st.emails(), st.integers(0, 700))
def test_half_an_address_at_the_cut_is_not_shown(address: str, length: int) -> None:
    name = address.rpartition("@")[0]
    shown = tell("x" * length + " " + address + " " + "y" * 700)
    assert len(name) < 4 or f" {name}" not in shown


@given(st.text())
def test_it_is_one_short_line(said: str) -> None:
    shown = tell(said, "ana@example.com", ["secret"])
    assert len(shown) <= 255 and "\n" not in shown
