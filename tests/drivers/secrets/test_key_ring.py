import base64
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.errors import Conflict, Invalid
from shared.drivers.secrets import KeyRing, fresh_key, read_keys

OLD, NEW = fresh_key(), fresh_key()
SECRET = {"user": "postman", "password": "pat-the-postman"}
OWNER = "0190b5a2-0000-7000-8000-000000000000"
RING = KeyRing([OLD])
SEALED = RING.seal(SECRET, OWNER)


@given(st.dictionaries(st.text(), st.text(), max_size=5), st.uuids().map(str))
def test_what_was_sealed_opens_for_its_owner(secret: dict[str, str], owner: str) -> None:
    assert RING.open(RING.seal(secret, owner), owner) == secret


def test_no_two_sealed_texts_are_alike_and_none_shows_the_secret() -> None:
    first, second = RING.seal(SECRET, OWNER), RING.seal(SECRET, OWNER)
    assert first != second
    assert not any(word in first for word in (*SECRET, *SECRET.values()))


def test_another_owner_cannot_open_it() -> None:
    with pytest.raises(Conflict, match="damaged or moved"):
        RING.open(RING.seal(SECRET, OWNER), OWNER.replace("8", "9"))


@given(st.integers(0, len(SEALED) - 1), st.characters())
def test_whatever_is_changed_in_it_no_other_secret_comes_out(place: int, character: str) -> None:
    changed = SEALED[:place] + character + SEALED[place + 1 :]
    try:
        # The last character of base64 has bits that mean nothing.
        assert RING.open(changed, OWNER) == SECRET
        assert changed == SEALED or place >= len(SEALED) - 3
    except Conflict:
        assert changed != SEALED


@pytest.mark.parametrize("sealed", ["", "1", "1.", "1..", "2.a.b", "no text of ours", "1.00000000.AAAA"])
def test_what_nobody_sealed_does_not_open(sealed: str) -> None:
    with pytest.raises(Conflict):
        RING.open(sealed, OWNER)


def test_a_new_key_before_the_old_one_seals_and_both_open() -> None:
    both, new = KeyRing([NEW, OLD]), KeyRing([NEW])
    by_old = RING.seal(SECRET, OWNER)
    assert both.open(by_old, OWNER) == SECRET
    by_new = both.seal(both.open(by_old, OWNER), OWNER)
    assert both.current == new.current != KeyRing([OLD]).current
    assert (by_old.split(".")[1], by_new.split(".")[1]) == (KeyRing([OLD]).current, both.current)
    assert new.open(by_new, OWNER) == SECRET
    with pytest.raises(Conflict, match=r"providers\.secret_keys"):
        new.open(by_old, OWNER)


@pytest.mark.parametrize("use", ["seal", "fingerprint"])
def test_without_a_key_nothing_is_sealed_and_the_setting_is_named(use: str) -> None:
    with pytest.raises(Invalid, match=r"providers\.secret_keys") as refused:
        _ = KeyRing().seal(SECRET, OWNER) if use == "seal" else KeyRing().fingerprint(SECRET)
    assert (refused.value.field, refused.value.value) == ("secret", None)


@pytest.mark.parametrize(
    "key",
    ["", "short", "a" * 44, OLD[:-1], OLD + "A", "ä" * 44, "=" * 44],
    ids=["empty", "short", "no padding", "cut off", "too long", "no ASCII", "nothing but padding"],
)
def test_a_key_that_is_none_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(Invalid) as refused:
        KeyRing([key])
    assert refused.value.field == "providers.secret_keys"
    assert not key or key not in str(refused.value)


def test_fingerprints_tell_secrets_apart_whatever_the_order_of_their_parts() -> None:
    assert RING.fingerprint(SECRET) == RING.fingerprint(dict(reversed(SECRET.items())))
    assert RING.fingerprint(SECRET) != RING.fingerprint(SECRET | {"password": "another"})
    assert RING.fingerprint(SECRET) != KeyRing([NEW]).fingerprint(SECRET)


def test_nothing_that_is_printed_shows_a_key_or_a_secret() -> None:
    shown = repr(RING)
    try:
        KeyRing([NEW]).open(RING.seal(SECRET, OWNER), OWNER)
    except Conflict as error:
        shown += "".join(traceback.format_exception(error))
    try:
        RING.open(RING.seal(SECRET, OWNER), "another")
    except Conflict as error:
        shown += "".join(traceback.format_exception(error))
    assert not any(word in shown for word in (OLD, NEW, *SECRET.values()))
    assert "InvalidTag" not in shown


def test_keys_are_parted_by_commas_or_blanks() -> None:
    assert read_keys(f" {OLD},{NEW}\n") == read_keys(f"{OLD} , {NEW}") == [OLD, NEW]
    assert read_keys("") == []


def test_each_key_has_another_for_each_purpose() -> None:
    derived = KeyRing([NEW, OLD]).derive("links")
    assert derived == [*KeyRing([NEW]).derive("links"), *KeyRing([OLD]).derive("links")]
    assert len({*derived, *KeyRing([NEW, OLD]).derive("others"), KeyRing([NEW]).digest(b"links")}) == 5
    assert KeyRing().derive("links") == []


def test_what_was_derived_once_is_derived_by_every_later_version() -> None:
    ring = KeyRing([base64.b64encode(bytes(32)).decode()])
    assert ring.derive("unsubscribing")[0].hex()[:16] == "8eca17662a6667ed"
