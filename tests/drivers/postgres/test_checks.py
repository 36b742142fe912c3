"""Whatever would keep a job from running is found when it is posted, and named."""

from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from shared.audience.rules.audiences import BEGINNING, MAX_VALUE_BYTES, KeyRange
from shared.audience.rules.devices import Cut
from shared.core.errors import Invalid
from shared.drivers.postgres import Audience

TABLE = "game_apns"


@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"locale": "en", "NOTregion": "BR,US"},
        {"level": "7,08, 9"},
        {"level": "-3"},
        {"code": "abcd,abcdefgh"},
        {"state": "Good,bad"},
        {"born": "2001-02-03"},
        {'od"d $1 %s; --': "x"},
        {"seq_id": "1"},
        {"locale": "," * (MAX_VALUE_BYTES)},
        {"NOTlocale": "," * (MAX_VALUE_BYTES)},
    ],
)
async def test_filters_on_columns_that_are_there_pass(audience: Audience, filters: dict[str, str]) -> None:
    await audience.check(TABLE, filters)
    assert await audience.cut(TABLE, filters, after=BEGINNING, upto=9, size=5, batches=2) == []
    assert len(await audience.read(TABLE, filters, KeyRange(0, 9))) == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("nothere", "x"),
        ("Locale", "en"),
        ("ctid", "(0,1)"),
        ("NOTnothere", "x"),
        ("level", "high"),
        ("level", "1,x"),
        ("NOTlevel", ""),
        ("level", "99999999999"),
        ("state", "GOOD"),
        ("born", "2001-02-31"),
        ("extra", "{}"),
        ("locale", "\0"),
        ("locale = 'en' OR true --", "x"),
        ('locale" = $1 OR "locale', "x"),
        ("locale; DROP TABLE game_apns; --", "x"),
        ("locale", 5),
    ],
)
async def test_a_filter_that_cannot_work_is_invalid_by_its_key(
    audience: Audience, owner: Any, key: str, value: Any
) -> None:
    await owner.execute(f"INSERT INTO {TABLE} (user_id, seq_id, state, born) VALUES ('u', 1, 'bad', '2001-02-03')")
    with pytest.raises(Invalid) as caught:
        await audience.check(TABLE, {"region": "BR", key: value})
    assert caught.value.field == f"filters.{key}"
    with pytest.raises(Invalid):
        await audience.cut(TABLE, {key: value}, after=BEGINNING, upto=9, size=5, batches=2)
    assert await audience.highest(TABLE) == 1, "the table is still there"


@pytest.mark.parametrize("table", ["other_apns", "GAME_apns", "public.game_apns", 'game_apns"', "", "'; DROP TABLE x"])
async def test_a_table_that_is_not_there_is_invalid_and_blames_the_app(audience: Audience, table: str) -> None:
    for work in (
        audience.check(table, {}),
        audience.highest(table),
        audience.cut(table, {}, after=0, upto=9, size=5, batches=2),
        audience.read(table, {}, KeyRange(0, 9)),
    ):
        with pytest.raises(Invalid, match="there is no table") as caught:
            await work
        assert caught.value.field == "app"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("DROP COLUMN token, DROP COLUMN tz", "lacks the columns token, tz"),
        ("RENAME seq_id TO id", "lacks the columns seq_id"),
        ("ALTER seq_id TYPE numeric", "no integer but numeric"),
    ],
)
async def test_a_table_that_is_no_push_table_is_invalid(
    audience: Audience, owner: Any, change: str, reason: str
) -> None:
    await owner.execute(f"ALTER TABLE {TABLE} {change}")
    with pytest.raises(Invalid, match=reason) as caught:
        await audience.check(TABLE, {})
    assert caught.value.field == "app"


async def test_a_missing_index_on_the_keys_is_only_a_warning(audience: Audience, owner: Any) -> None:
    with capture_logs() as quiet:
        await audience.check(TABLE, {})
    await owner.execute("DROP INDEX game_apns_seq_id_idx")
    with capture_logs() as logs:
        await audience.check(TABLE, {})
    assert quiet == []
    assert [(entry["log_level"], entry["table"]) for entry in logs] == [("warning", TABLE)]


async def test_a_hyphen_in_a_table_name_is_fine(audience: Audience, owner: Any) -> None:
    await owner.execute(f'ALTER TABLE {TABLE} RENAME TO "my-game_apns"')
    await audience.check("my-game_apns", {"locale": "en"})
    assert await audience.highest("my-game_apns") == 0


async def test_filters_compare_as_the_type_of_their_column_does(audience: Audience, owner: Any) -> None:
    await owner.execute(f"INSERT INTO {TABLE} (seq_id, level, code, born) VALUES (1, 7, 'ab', '2001-02-03')")
    cut = partial(audience.cut, TABLE, after=BEGINNING, upto=9, size=5, batches=2)
    for same in ({"level": "07"}, {"code": "ab"}, {"born": "3 Feb 2001"}, {"NOTlevel": "8,9"}, {"code": "x,ab"}):
        assert await cut(same) == [Cut(1, 1)]
    for other in ({"code": "abcdefgh"}, {"code": "abcd,abc"}, {"NOTlevel": "7"}, {"NOTstate": "bad"}):
        assert await cut(other) == []
