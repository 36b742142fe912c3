"""Cuts partition what the filters keep, as told by an independent oracle, and ranges can be read again."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shared.audience.rules.audiences import BEGINNING, KeyRange
from shared.audience.rules.devices import Cut
from shared.drivers.postgres import Audience
from tests.drivers.postgres.rows import Row, rows_of

TABLE = "game_apns"
ODD = 'od"d $1 %s; --'
COLUMNS = ("user_id", "token", "locale", "region", "tz", "seq_id", "level", ODD)
TEXTS = ["en", "EN", "en ", "pt_BR", "", " ", "NULL", "a'b", 'a"b', "%", "_", "\\", "\\'", "$1", "日本", "ü", "{en}"]
INJECTIONS = ["'; DROP TABLE game_apns; --", "' OR '1'='1", "en' OR true --", "\n", "\x01", "/*", "${locale}"]

letters = st.characters(codec="utf-8", exclude_characters="\0,")
texts = st.one_of(st.none(), st.sampled_from(TEXTS + INJECTIONS), st.text(letters, max_size=3))
keys = st.one_of(
    st.none(),
    st.integers(-12, 40),
    st.sampled_from([BEGINNING + 1, -(2**40), 2**40, 2**63 - 1]),
)
levels = st.one_of(st.none(), st.integers(-2, 12))
rows = st.lists(st.tuples(texts, texts, texts, texts, texts, keys, levels, texts), max_size=50)

values = st.lists(st.sampled_from(TEXTS + INJECTIONS), min_size=1, max_size=3).map(",".join)
numbers = st.lists(st.integers(-2, 12).map(lambda n: f"{n:02d}"), min_size=1, max_size=3).map(",".join)
names = st.sampled_from([prefix + column for prefix in ("", "NOT") for column in ("locale", "region", "user_id", ODD)])
filters: st.SearchStrategy[dict[str, str]] = st.one_of(
    st.just({}),
    st.dictionaries(names, values, max_size=2),
    st.fixed_dictionaries({"level": numbers}),
    st.fixed_dictionaries({"NOTlevel": numbers, "NOTlocale": values}),
)


def kept(row: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    """The specification's rule, said once more in Python."""
    for key, value in wanted.items():
        actual = row[column := key.removeprefix("NOT")]
        fold = folded if column in ("locale", "region") else type(actual)
        among = fold(actual) in [fold(part.strip()) for part in value.split(",")] if actual is not None else None
        if among is None or among is key.startswith("NOT"):
            return False
    return row["seq_id"] is not None


def folded(text: str) -> str:
    return text.strip(" ").replace("_", "-").lower()


def devices(table: Iterable[tuple[Any, ...]], wanted: Mapping[str, str], upto: int) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for row in (dict(zip(COLUMNS, each, strict=True)) for each in table):
        if kept(row, wanted) and row["seq_id"] <= upto:
            found[row["seq_id"], *(row[column] or "" for column in ("user_id", "token", "locale"))] += 1
    return found


async def planned(
    audience: Audience, wanted: Mapping[str, str], upto: int, *, size: int, batches: int
) -> list[tuple[KeyRange, Cut]]:
    """Cut as a planner does: again and again from the last cut's end."""
    plan: list[tuple[KeyRange, Cut]] = []
    after = BEGINNING
    while page := await audience.cut(TABLE, wanted, after=after, upto=upto, size=size, batches=batches):
        assert len(page) <= batches
        for cut in page:
            plan.append((KeyRange(after, cut.upto), cut))
            after = cut.upto
    return plan


async def refill(owner: Any, table: list[tuple[Any, ...]]) -> None:
    await owner.execute(f"TRUNCATE {TABLE}")
    await owner.copy_records_to_table(TABLE, records=table, columns=COLUMNS)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows, filters, st.integers(1, 6), st.integers(1, 4), st.one_of(st.none(), st.integers(-5, 30)))
@example([(None, None, "EN", None, None, 1, None, None)], {"locale": "en"}, 1, 1, None)
@example([("en", None, None, "pt_BR", None, 1, None, None)], {"user_id": "en ", "region": "PT-br"}, 1, 1, None)
async def test_every_kept_row_is_in_exactly_one_cut(
    audience: Audience,
    owner: Any,
    table: list[tuple[Any, ...]],
    wanted: dict[str, str],
    size: int,
    batches: int,
    limit: int | None,
) -> None:
    await refill(owner, table)
    await audience.check(TABLE, wanted)
    present = [row[5] for row in table if row[5] is not None]
    assert await audience.highest(TABLE) == max(present, default=0)
    upto = await audience.highest(TABLE) if limit is None else limit

    plan = await planned(audience, wanted, upto, size=size, batches=batches)

    expected = devices(table, wanted, upto)
    sent: Counter[Row] = Counter()
    for reach, cut in plan:
        batch = rows_of(await audience.read(TABLE, wanted, reach))
        assert reach.after < reach.upto <= upto
        assert len(batch) == cut.size > 0
        assert [row[0] for row in batch] == sorted(row[0] for row in batch)
        assert Counter(rows_of(await audience.read(TABLE, wanted, reach))) == Counter(batch)
        sent.update(batch)
    assert sent == expected

    ties = max(Counter(row[0] for row in expected.elements()).values(), default=0)
    assert all(cut.size < size + max(ties, 1) for _, cut in plan)


async def fill(owner: Any, count: int, *, locale: str = "'en'") -> None:
    await owner.execute(
        f"INSERT INTO {TABLE} (user_id, token, locale, tz, seq_id)"
        f" SELECT 'u' || i, 't' || i, {locale}, '-0300', i FROM generate_series(1, {count}) i"
    )


async def test_pages_are_full_where_the_filters_keep_enough(audience: Audience, owner: Any) -> None:
    await fill(owner, 103, locale="CASE WHEN i % 2 = 0 THEN 'en' ELSE 'pt' END")
    plan = await planned(audience, {"locale": "en"}, 1000, size=2, batches=3)
    assert [cut.size for _, cut in plan] == [2] * 25 + [1]
    assert plan[0][1] == Cut(4, 2)


async def test_few_rows_far_apart_are_gathered_into_fewer_cuts(audience: Audience, owner: Any) -> None:
    await fill(owner, 160, locale="CASE WHEN i % 4 = 0 THEN 'en' ELSE 'pt' END")
    plan = await planned(audience, {"locale": "en"}, 160, size=100, batches=2)
    assert [cut.size for _, cut in plan] == [10, 10, 10, 10]  # of 20 scans that find 2 each, 5 a call


@pytest.mark.parametrize("place", [8, 9, 16, 17, 40])
async def test_a_row_behind_scans_that_find_nothing_is_found(audience: Audience, owner: Any, place: int) -> None:
    await fill(owner, 40, locale=f"CASE WHEN i = {place} THEN 'en' ELSE 'pt' END")
    plan = await planned(audience, {"locale": "en"}, 40, size=5, batches=2)
    assert [cut for _, cut in plan] == [Cut(place, 1)]


async def test_a_call_gives_no_more_cuts_than_it_was_asked_for(audience: Audience, owner: Any) -> None:
    await fill(owner, 30, locale="CASE WHEN i = 1 OR i > 9 THEN 'en' ELSE 'pt' END")
    plan = await planned(audience, {"locale": "en"}, 30, size=4, batches=1)
    assert [cut.size for _, cut in plan] == [1, 4, 4, 4, 4, 4, 1]


async def test_an_audience_of_nobody_has_no_cuts(audience: Audience, owner: Any) -> None:
    assert await audience.highest(TABLE) == 0
    assert await audience.cut(TABLE, {}, after=BEGINNING, upto=0, size=5, batches=2) == []
    await fill(owner, 100)
    assert await audience.cut(TABLE, {"locale": "fr"}, after=BEGINNING, upto=100, size=5, batches=2) == []
    assert await audience.cut(TABLE, {}, after=100, upto=100, size=5, batches=2) == []


async def test_rows_that_share_a_key_stay_together_however_many(audience: Audience, owner: Any) -> None:
    await fill(owner, 20)
    await owner.execute(f"UPDATE {TABLE} SET seq_id = 7 WHERE seq_id BETWEEN 4 AND 17")
    plan = await planned(audience, {}, 20, size=4, batches=10)
    assert [cut for _, cut in plan] == [Cut(7, 17), Cut(20, 3)]


async def test_rows_added_above_the_fixed_end_are_left_out(audience: Audience, owner: Any) -> None:
    await fill(owner, 10)
    highest = await audience.highest(TABLE)
    await owner.execute(f"INSERT INTO {TABLE} (user_id, seq_id) VALUES ('late', 11)")
    plan = await planned(audience, {}, highest, size=4, batches=1)
    assert [cut for _, cut in plan] == [Cut(4, 4), Cut(8, 4), Cut(10, 2)]


@pytest.mark.parametrize("key_type", ["smallint", "integer", "bigint"])
async def test_other_types_of_columns_are_read_as_text(audience: Audience, owner: Any, key_type: str) -> None:
    await owner.execute(f"""
        CREATE TABLE app_gcm (user_id bigint, token uuid, locale varchar(5), tz character(5), seq_id {key_type});
        INSERT INTO app_gcm VALUES (42, '6e1d6e0c-0000-4000-8000-000000000001', 'en', '+01', 1)""")
    keep = {"user_id": "042", "token": "6E1D6E0C000040008000000000000001", "locale": "en,enough", "NOTtz": "x"}
    await audience.check("app_gcm", keep)
    assert await audience.cut("app_gcm", keep, after=BEGINNING, upto=9, size=5, batches=2) == [Cut(1, 1)]
    read = rows_of(await audience.read("app_gcm", keep, KeyRange(0, 9)))
    assert read == [(1, "42", "6e1d6e0c-0000-4000-8000-000000000001", "en")]
    listed = await audience.read_users("app_gcm", ["042"], limit=9)
    assert listed is not None
    assert listed.zones == [b"+01"]


async def test_rows_that_are_deleted_during_the_scan_hide_no_other_row(
    audience: Audience, owner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row behind the first scan is found, whatever somebody deletes between two statements of one cut."""
    await refill(owner, [(f"u{n}", "t", "en", "XX" if n == 10 else "BR", "", n, None, None) for n in range(1, 41)])
    await audience.check(TABLE, {"region": "XX"})
    asked = audience.connections.fetch
    statements = []

    async def fetch_then_delete(statement: str, *arguments: object) -> list[Any]:
        rows = await asked(statement, *arguments)
        statements.append(statement)
        await owner.execute(f"DELETE FROM {TABLE} WHERE seq_id <= 5")
        return rows

    monkeypatch.setattr(audience.connections, "fetch", fetch_then_delete)
    cuts = await audience.cut(TABLE, {"region": "XX"}, after=BEGINNING, upto=40, size=1_000, batches=1)
    assert cuts == [Cut(10, 1)]
    assert len(statements) > 1


async def test_a_filter_by_a_locale_finds_both_codes_of_its_language(audience: Audience, owner: Any) -> None:
    locales = ["iw_IL", "HE-il", "he", "in", "ID", "id-ID", None, "inh"]
    await owner.executemany(f"INSERT INTO {TABLE} (seq_id, locale) VALUES ($1, $2)", [*enumerate(locales, 1)])
    whole = KeyRange(BEGINNING, 9)
    for value, keys in {"he-IL": [1, 2], "iw": [3], "in,id_ID": [4, 5, 6]}.items():
        assert (await audience.read(TABLE, {"locale": value}, whole)).keys.tolist() == keys
        others = [key for key in range(1, 9) if key not in {7, *keys}]
        assert (await audience.read(TABLE, {"NOTlocale": value}, whole)).keys.tolist() == others
