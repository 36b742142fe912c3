"""Names and cells without what nobody sees of them."""

from hypothesis import given
from hypothesis import strategies as st

from shared.audience.rules.columns import ZERO_WIDTH, column_name, strip_unseen


def test_one_name_may_be_written_in_many_ways() -> None:
    assert {column_name(name) for name in ("RECIPIENT", " recipient\t", "\ufeffRec\u200bipient")} == {"recipient"}
    assert column_name("First Name") == "first name"
    assert column_name("E\u0301tage") == column_name("\u00c9TAGE")


@given(st.text(st.sampled_from(ZERO_WIDTH + " \tAÉi\u0130\u0301"), max_size=10))
def test_the_name_of_a_name_is_itself(written: str) -> None:
    assert column_name(column_name(written)) == column_name(written)


@given(st.text(st.sampled_from(ZERO_WIDTH + " \n\u00a0a\u3000"), max_size=8))
def test_nothing_that_nobody_sees_is_left_around_a_text(text: str) -> None:
    stripped = strip_unseen(text)
    assert stripped in text
    assert not stripped or {stripped[0], stripped[-1]} == {"a"}
