"""PostgreSQL's catalogue entries about a push table."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from shared.domain.audience.audiences import Condition
from shared.domain.audience.column_names import column_name
from shared.domain.audience.user_ids import NORMAL_FORMS
from shared.domain.errors import Invalid, suggest

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
        """The names of the columns as a header would give them (`shared.domain.audience.column_names`)."""
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
    """The table that `DESCRIBE` found."""
    if not rows:
        raise Invalid(f'there is no table "{name}" in the push database', field="app")
    columns = {row["name"]: Column(row["type"], row["indexed"], row["deterministic"], row["unique"]) for row in rows}
    missing = [column for column in (KEY, *needed) if column not in columns]
    if missing:
        raise Invalid(f'table "{name}" lacks the columns {", ".join(missing)}', field="app")
    if columns[KEY].type not in KEY_TYPES:
        raise Invalid(f'column "{KEY}" of table "{name}" is no integer but {columns[KEY].type}', field="app")
    return Table(name, columns)
