"""What an app may be called, and from when on it takes nothing new."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.accounts.rules.apps import App, check_app, check_app_name, check_not_deleting, name_key
from shared.core.errors import Conflict, Invalid

APP = App(id="i", name="game", bundle_id="com.example.game", created_by="me", created_at=1, updated_at=1)


@given(st.from_regex(r"[A-Za-z0-9_-]{1,50}", fullmatch=True))
def test_a_name_that_can_stand_in_the_name_of_a_table_is_taken(name: str) -> None:
    check_app_name(name)


@pytest.mark.parametrize("name", ["", "a" * 51, "a b", "a.b", "ä", "a\n", "a;b", "a%s"])
def test_any_other_name_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match=r"^invalid name") as refused:
        check_app(name, "com.example.game")
    assert (refused.value.field, refused.value.value) == ("name", name)


@pytest.mark.parametrize("bundle_id", ["com.example.game", "a.b.c", "1.2.3.4.5", "a." * 127 + "b"])
def test_a_bundle_has_three_labels_or_more(bundle_id: str) -> None:
    check_app("game", bundle_id)


@pytest.mark.parametrize(
    "bundle_id",
    [
        "",
        "game",
        "example.game",
        "com.Example.game",
        "com..game",
        "com.example.",
        "a.b.c\n",
        "a." * 127 + "bc",
        "a.b.ß",
    ],
)
def test_any_other_bundle_is_refused(bundle_id: str) -> None:
    with pytest.raises(Invalid, match=r"^invalid bundleId") as refused:
        check_app("game", bundle_id)
    assert (refused.value.field, refused.value.value) == ("bundleId", bundle_id)


def test_names_that_differ_in_case_are_one_name() -> None:
    assert name_key("Game-1") == name_key("gAME-1") != name_key("game-2")


def test_that_an_app_is_going_is_read_in_every_release() -> None:
    stored = b'{"id":"i","name":"game","bundle_id":"com.example.game","created_by":"me","created_at":1,"updated_at":1'
    assert msgspec.json.decode(stored + b"}", type=App) == APP
    assert msgspec.json.decode(stored + b',"going":true}', type=App).deleting


def test_an_app_takes_nothing_new_once_its_deletion_has_begun() -> None:
    check_not_deleting(APP, "i")
    deleting = App(
        id="i", name="game", bundle_id="com.example.game", created_by="me", created_at=1, updated_at=1, deleting=True
    )
    for gone in (deleting, None):
        with pytest.raises(Conflict) as refused:
            check_not_deleting(gone, "i")
        assert (refused.value.field, refused.value.value) == ("appId", "i")
