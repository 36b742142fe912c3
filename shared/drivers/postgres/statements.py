"""The catalogue's entries about a push table, and the statements of an audience, as text with numbered parameters.

The text contains only quoted names and types from the catalogue. So one table and one shape of filters give one
text, which each connection prepares once.
"""

# ruff: noqa: S608 - making statements is what this module is for, and the rule above is what keeps it safe

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from shared.audience.rules.audiences import Condition
from shared.audience.rules.columns import NORMAL_FORMS, column_name
from shared.core.errors import Invalid, suggest

KEY = "seq_id"
USER = "user_id"
ZONE = "tz"
DETAILS = (USER, "token", "locale", ZONE)
KEY_TYPES = frozenset({"smallint", "integer", "bigint"})
# A domain counts as its base type, as in PostgreSQL's comparisons. The modifier -1 keeps "(5)" and the like out of the
# type's name: a cast to character(5) would cut a longer value and find rows that do not equal it. A view and a foreign
# table have no indexes of their own: those of their tables serve.
DESCRIBE = """
SELECT a.attname AS name,
       format_type(coalesce(nullif(t.typbasetype, 0), t.oid), -1) AS type,
       r.relkind IN ('v', 'f')
         OR EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = a.attrelid AND i.indkey[0] = a.attnum
               AND i.indisvalid AND i.indpred IS NULL) AS indexed,
       coalesce((SELECT c.collisdeterministic FROM pg_catalog.pg_collation c WHERE c.oid = a.attcollation), true)
           AS deterministic,
       EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = a.attrelid AND i.indkey[0] = a.attnum
               AND i.indnkeyatts = 1 AND i.indisunique AND i.indisvalid AND i.indpred IS NULL) AS unique
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
JOIN pg_catalog.pg_class r ON r.oid = a.attrelid
WHERE a.attrelid = to_regclass($1::text) AND a.attnum > 0 AND NOT a.attisdropped
"""


class Column(Struct, frozen=True):
    """A column's type as SQL text from the catalogue; whether an index begins with it (`DESCRIBE`); whether its
    collation equates only identical bytes; whether an index makes its values unique."""

    type: str
    indexed: bool
    deterministic: bool
    unique: bool


class Table(Struct, frozen=True):
    """A push table with all columns that a push needs, or a table of recipients, which needs only a key."""

    name: str
    columns: Mapping[str, Column]

    def type_of(self, condition: Condition) -> str:
        column = self.columns.get(condition.column)
        if column is None:
            hint = suggest(condition.column, self.columns)
            raise Invalid(f'table "{self.name}" has no column "{condition.column}"{hint}', field=condition.field)
        return column.type

    def names(self) -> tuple[str, ...]:
        """The names of the columns as a header would give them (`shared.audience.rules.columns`)."""
        return tuple(dict.fromkeys(map(column_name, self.columns)))

    def find(self, name: str, field: str) -> str:
        if name in self.columns:
            return name
        meant = [column for column in self.columns if column_name(column) == name]
        if not meant:
            raise Invalid(f'table "{self.name}" has no column "{name}"{suggest(name, self.names())}', field=field)
        if len(meant) > 1:
            raise Invalid(f'table "{self.name}" has several columns for the name "{name}"', field=field)
        return meant[0]

    def user_type(self) -> str:
        column = self.columns[USER]
        if column.type in NORMAL_FORMS and column.deterministic:
            return column.type
        described = column.type if column.deterministic else f"{column.type} with a nondeterministic collation"
        reason = (
            f'column "{USER}" of table "{self.name}" is {described}; a csvPath needs one of {", ".join(NORMAL_FORMS)}'
        )
        raise Invalid(reason, field="app")


def read_table(name: str, rows: Sequence[Any], needed: Sequence[str] = DETAILS) -> Table:
    if not rows:
        raise Invalid(f'there is no table "{name}" in the push database', field="app")
    columns = {row["name"]: Column(row["type"], row["indexed"], row["deterministic"], row["unique"]) for row in rows}
    missing = [column for column in (KEY, *needed) if column not in columns]
    if missing:
        raise Invalid(f'table "{name}" lacks the columns {", ".join(missing)}', field="app")
    if columns[KEY].type not in KEY_TYPES:
        raise Invalid(f'column "{KEY}" of table "{name}" is no integer but {columns[KEY].type}', field="app")
    return Table(name, columns)


PING = "SELECT 1"
# The catalogue's estimate of the rows of the table ($1): below 1 if it was never analysed.
ROWS = "SELECT reltuples::bigint AS rows FROM pg_catalog.pg_class WHERE oid = to_regclass($1::text)"
TEXT_CHARACTERS = 64  # of a zone or a locale in a count; real ones are far shorter
# The columns of a device, and its zone if it is asked for.
_TEXTS = (USER, "token", "locale")
_TEXTS_AND_ZONE = (*_TEXTS, ZONE)
# The counts of some rows, by zone and locale.
_GROUPS = f"""SELECT kept, left(zone, {TEXT_CHARACTERS}) AS zone, left(locale, {TEXT_CHARACTERS}) AS locale,
       min({KEY})::bigint AS first, max({KEY})::bigint AS upto, count(*) AS devices,
       count(*) FILTER (WHERE token <> '') AS reachable,
       max(octet_length(token)) AS longest_token, max(octet_length(user_id)) AS longest_user,
       string_agg(int8send(hashtextextended(user_id COLLATE "C", 0)), ''::bytea) AS users"""
# Reads the values as the column's type does, and asks for its equality operator.
PROBE = "SELECT count(*) FILTER (WHERE value = value) FROM (SELECT unnest($1::text[])::{type} AS value) given"


def quote_name(name: str) -> str:
    """The name as an identifier: exactly these characters, whatever they are."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def highest(table: str) -> str:
    return f"SELECT max({KEY})::bigint FROM {quote_name(table)}"


def probe(column_type: str) -> str:
    """Fails unless the values ($1) can be read as this type and compared."""
    return PROBE.format(type=column_type)


def read(table: Table, conditions: Sequence[Condition]) -> str:
    """The first $3 devices between $1 and $2, in the order of their keys; of the last key, all of them."""
    kept = _all_clauses(table, conditions, first=4)
    return _in_columns(f"{_interval(table)} AND {kept} ORDER BY {KEY} FETCH FIRST ($3::bigint) ROWS WITH TIES")


def read_columns(table: Table, conditions: Sequence[Condition], *, columns: Sequence[str]) -> str:
    """The rows of `read` with these columns as texts, named `text_0` and so on, in place of a device's columns."""
    kept = _all_clauses(table, conditions, first=4)
    found = f"{_interval(table)} AND {kept} ORDER BY {KEY} FETCH FIRST ($3::bigint) ROWS WITH TIES"
    return _aggregate(found, {text_name(place): quote_name(column) for place, column in enumerate(columns)})


def text_name(place: int) -> str:
    return f"text_{place}"


def read_keys(table: Table, conditions: Sequence[Condition]) -> str:
    """The devices of `read` with the keys in $4.

    The bounds let the planner walk along a part of the index if the keys lie close together.
    """
    kept = f"{KEY} IN (SELECT unnest($4::bigint[])) AND {_all_clauses(table, conditions, first=5)}"
    return _in_columns(f"{_interval(table)} AND {kept} ORDER BY {KEY} FETCH FIRST ($3::bigint) ROWS WITH TIES")


def divide(table: Table, conditions: Sequence[Condition]) -> str:
    """The keys that the filters keep of the first $3 rows between $1 and $2, as integers of 8 bytes: a group per
    `tz`. The other rows are a group too, so that the groups say how far the statement scanned."""
    return f"""
SELECT text, count(*) AS rows, max({KEY}) AS upto, string_agg(int8send({KEY}), ''::bytea) FILTER (WHERE kept) AS keys
FROM (SELECT {KEY}, kept, CASE WHEN kept THEN left(text, {TEXT_CHARACTERS}) END AS text
      FROM (SELECT {KEY}::bigint, tz::text AS text, coalesce({_all_clauses(table, conditions, first=4)}, false) AS kept
            FROM {_interval(table)} ORDER BY {KEY} FETCH FIRST ($3::bigint) ROWS WITH TIES) scanned) told
GROUP BY text, kept"""


def divide_users(table: Table) -> str:
    """Key, user and `tz` of at most $2 devices of the users in $1."""
    text = f"left(tz::text, {TEXT_CHARACTERS}) AS text"
    return f"SELECT {KEY}::bigint, {USER}::text, {text} FROM {_rows_of_users(table)} LIMIT $2::bigint"


def shared_key(table: Table) -> str:
    among = f"{KEY} IN (SELECT unnest($1::bigint[]))"
    return f"SELECT {KEY} FROM {quote_name(table.name)} WHERE {among} GROUP BY {KEY} HAVING count(*) > 1 LIMIT 1"


def of_users(table: Table) -> str:
    """At most $2 devices of the users in $1, in the order of their keys, with their zones."""
    return _in_columns(f"{_rows_of_users(table)} ORDER BY {KEY} LIMIT $2::bigint", _TEXTS_AND_ZONE)


def cut(table: Table, conditions: Sequence[Condition]) -> str:
    """The first $3 keys between $1 and $2 that the filters keep, as integers of 8 bytes, out of the first $4 rows; of
    the last key, all of them. If the filters keep none of these, `upto` says how far the scan went.

    Both come from one statement, and so from one snapshot: a row that is deleted between two statements would move the
    end of the scan beyond rows that were not scanned.

    The inner limit bounds the scan of one statement, however few rows the filters keep. It comes between the order and
    the filters, so every plan has to walk along the index of keys.
    """
    edge = f"SELECT {KEY}::bigint FROM {_interval(table)} ORDER BY {KEY} OFFSET $4::bigint - 1 LIMIT 1"
    return f"""
SELECT keys, CASE WHEN keys IS NULL THEN coalesce(({edge}), $2) END AS upto
FROM (SELECT string_agg(int8send({KEY}::bigint), ''::bytea) AS keys
      FROM (SELECT {KEY}
            FROM (SELECT {KEY}, {_all_clauses(table, conditions, first=5)} AS kept
                  FROM {_interval(table)} ORDER BY {KEY} FETCH FIRST ($4::bigint) ROWS WITH TIES) scanned
            WHERE kept ORDER BY {KEY} FETCH FIRST ($3::bigint) ROWS WITH TIES) found) told"""


def tally(table: Table, conditions: Sequence[Condition]) -> str:
    """The rows that the filters keep of the first $3 between $1 and $2, by zone and locale. The other rows have their
    own groups, so that the groups say how far the statement scanned.

    `users` are hashes of 8 bytes, one per device with a user.
    """
    return f"""
{_GROUPS}
FROM (SELECT {KEY}, kept, CASE WHEN kept THEN tz END AS zone, CASE WHEN kept THEN locale END AS locale,
             CASE WHEN kept THEN token END AS token, CASE WHEN kept THEN user_id END AS user_id
      FROM (SELECT {KEY}, tz::text, locale::text, token::text, user_id::text,
                   coalesce({_all_clauses(table, conditions, first=4)}, false) AS kept
            FROM {_interval(table)} ORDER BY {KEY} FETCH FIRST ($3::bigint) ROWS WITH TIES) scanned) told
GROUP BY 1, 2, 3"""


def tally_of_users(table: Table) -> str:
    """The devices of the users in $1, found as in `of_users`, in groups as in `tally`."""
    return f"""
{_GROUPS}
FROM (SELECT {KEY}, true AS kept, tz::text AS zone, locale::text, token::text, {USER}::text AS user_id
      FROM {_rows_of_users(table)}) told
GROUP BY 1, 2, 3"""


def _in_columns(found: str, texts: Sequence[str] = _TEXTS) -> str:
    return _aggregate(found, {text: text for text in texts})


def _aggregate(found: str, texts: Mapping[str, str]) -> str:
    """These rows as one: their keys as integers of 8 bytes, and each text column as UTF-8 with a NUL between texts,
    because no text of PostgreSQL contains one. All are NULL if there are no rows.

    One row per device would cost the server, the driver and the reader more than twice as much.
    """
    # `key`, not the column's name: ORDER BY would else mean the bigint, whose order no index of integers has.
    columns = [f"string_agg(int8send(key), ''::bytea) AS {KEY}"]
    columns += [f"string_agg(textsend({name}), '\\x00'::bytea) AS {name}" for name in texts]
    details = [f"{KEY}::bigint AS key", *(f"coalesce({column}::text, '') AS {name}" for name, column in texts.items())]
    return f"SELECT {', '.join(columns)} FROM (SELECT {', '.join(details)} FROM {found}) found"


def _interval(table: Table) -> str:
    return f"{quote_name(table.name)} WHERE {KEY} > $1::bigint AND {KEY} <= $2::bigint"


def _rows_of_users(table: Table) -> str:
    """The rows of the users in $1. A subquery, because for an array of a few thousand users the planner would read
    all of a table of millions."""
    users = f"SELECT unnest($1::text[]::{table.columns[USER].type}[])"
    return f"{quote_name(table.name)} WHERE {USER} IN ({users}) AND {KEY} IS NOT NULL"


def _all_clauses(table: Table, conditions: Sequence[Condition], *, first: int) -> str:
    clauses = [
        _clause(condition, table.type_of(condition), number) for number, condition in enumerate(conditions, first)
    ]
    return f"({' AND '.join(clauses) or 'true'})"


def _clause(condition: Condition, column_type: str, number: int) -> str:
    """A comparison by the column's type, as with a literal, so that the column's index can serve.

    A single value takes the plain operator, with which an index of this column and the key keeps the order of keys.
    """
    column = quote_name(condition.column)
    operator = "<>" if condition.negated else "="
    every = "ALL" if condition.negated else "ANY"
    if condition.folded:
        values = f"ARRAY(SELECT {_fold('value')} FROM unnest(${number}::text[]) value)"
        return f"{_fold(f'{column}::text')} {operator} {every}({values})"
    if len(condition.values) == 1:
        return f"{column} {operator} ${number}::text::{column_type}"
    return f"{column} {operator} {every}(${number}::text[]::{column_type}[])"


def arguments(conditions: Sequence[Condition]) -> list[str | list[str]]:
    return [
        condition.values[0] if len(condition.values) == 1 and not condition.folded else list(condition.values)
        for condition in conditions
    ]


def _fold(text: str) -> str:
    """The folded form of a `Condition`; an index on exactly this expression serves it."""
    return f"lower(translate(btrim({text}), '_', '-'))"
