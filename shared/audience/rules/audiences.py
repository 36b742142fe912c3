"""Audiences: their sources, the ranges that are read of them, the meaning of a job's filters, and their figures.

A source is fixed before the first cut: later additions and changes do not count. A range gives the same rows at
each reading.

A filter's key names a column, and its value is compared with that column, as in Marathon. A comma list accepts any
of its parts, without surrounding blanks; a key that contains `NOT` excludes all of them. Several keys must all
hold. A NULL column never matches, not even `NOT`. Locales and regions are compared without regard to case, and `_`
in them is `-`; a withdrawn code of a language, such as `iw`, is its successor.

Values are data: only an app name that passed its rule becomes part of a statement's text.
"""

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from shared.accounts.rules.apps import check_app_name
from shared.audience.rules.columns import strip_unseen
from shared.audience.rules.zones import REST, SHOWN_VALUES, ZoneRules, read_zone, zone_of
from shared.core.errors import Invalid


class PushTable(Struct, frozen=True, tag="table"):
    """The rows of the push table up to `highest`, the greatest `seq_id` at the beginning of the plan."""

    highest: int


class File(Struct, frozen=True, tag="file"):
    """One version of an object of `size` bytes at `path`, which is "<bucket>/<key>"."""

    path: str
    size: int
    version: str


Source = PushTable | File


class KeyRange(Struct, frozen=True, tag="keys", omit_defaults=True):
    """The rows of the table with `after` < seq_id <= `upto` that the job's filters keep, without those whose seq_id is
    one of `repeated`."""

    after: int
    upto: int
    repeated: tuple[int, ...] = ()


class ByteRange(Struct, frozen=True, tag="bytes"):
    """The users in the job's file from byte `start` up to `end`, which are `rows` whole records.

    `repeated` has a bit for each row, the highest of the first byte for the first row: set if the user has an earlier
    row. It is empty without repeats.
    """

    start: int
    end: int
    rows: int
    repeated: bytes = b""

    @property
    def repeats(self) -> int:
        return int.from_bytes(self.repeated).bit_count()

    @property
    def users(self) -> int:
        return self.rows - self.repeats


class DeviceList(Struct, frozen=True, tag="devices"):
    """The devices of one list of a group's division (`shared.jobs.rules.groups`), stored under this id."""

    id: str


Range = KeyRange | ByteRange | DeviceList
NEGATION = "NOT"
MAX_FILTERS = 64
MAX_VALUE_BYTES = 64 * 1024
MAX_COLUMN_BYTES = 63  # PostgreSQL cuts longer names, and could then find another column
LOCALE = "locale"
_FOLDED = frozenset({LOCALE, "region"})
_SUCCESSORS = {"in": "id", "iw": "he", "ji": "yi", "jw": "jv", "mo": "ro"}  # of IANA's registry (RFC 5646, 2.2.1)
_WITHDRAWN = {successor: code for code, successor in _SUCCESSORS.items()}
BEGINNING = -(2**63)
"""The `after` of a job's first range: below every possible seq_id."""


class Condition(Struct, frozen=True):
    """`column` equals one of `values`, or none of them if `negated`; NULL does neither. If `folded`, both sides are
    compared without case and surrounding blanks, and with `-` for `_`. `field` is its place in the request."""

    column: str
    values: tuple[str, ...]
    negated: bool
    field: str
    folded: bool = False


def table_name(app_name: str, service: str) -> str:
    """The push table of an app and a service. Names that differ only in case share it."""
    check_app_name(app_name)
    return f"{app_name.lower()}_{service}"


def normal_locale(written: str) -> str:
    """The locale for comparisons: `pt_BR` and ` PT-br` are `pt-br`, `iw_IL` is `he-il`."""
    language, dash, rest = strip_unseen(written).lower().replace("_", "-").partition("-")
    return f"{_SUCCESSORS.get(language, language)}{dash}{rest}"


def conditions(filters: Mapping[str, object]) -> tuple[Condition, ...]:
    """The conditions of the filters, in the order of their keys. All must hold; without filters everybody is kept."""
    if len(filters) > MAX_FILTERS:
        raise Invalid(f"at most {MAX_FILTERS} filters", field="filters")
    return tuple(condition(key, filters[key]) for key in sorted(filters))


def condition(key: str, value: object) -> Condition:
    """The column of a negated key is its rest after the characters N, O and T are stripped from both ends, so
    `NOTlocale` means `locale`."""
    field = f"filters.{key}"
    negated = NEGATION in key
    column = key.strip(NEGATION) if negated else key
    if not column:
        raise Invalid("a filter needs the name of a column", field=field)
    if not isinstance(value, str):
        raise Invalid("a filter's value is a string", field=field, value=value)
    _check_text(column, "the name of a column", MAX_COLUMN_BYTES, field)
    _check_text(value, "a filter's value", MAX_VALUE_BYTES, field)
    parts = tuple(part.strip() for part in value.split(","))
    if column == LOCALE:
        parts = tuple(spelling for part in parts for spelling in _spellings(part))
    return Condition(column, parts, negated, field, folded=column in _FOLDED)


def _spellings(locale: str) -> tuple[str, ...]:
    """The locale, or both codes of a language that has a withdrawn one, because columns contain either."""
    language, dash, rest = normal_locale(locale).partition("-")
    return (f"{language}{dash}{rest}", f"{_WITHDRAWN[language]}{dash}{rest}") if language in _WITHDRAWN else (locale,)


def _check_text(text: str, what: str, limit: int, field: str) -> None:
    try:
        length = len(text.encode())
    except UnicodeEncodeError:
        raise Invalid(f"{what} must be valid Unicode", field=field) from None
    if length > limit:
        raise Invalid(f"{what} has at most {limit} bytes", field=field)
    if "\0" in text:
        raise Invalid(f"{what} must not contain NUL", field=field)


TEXTS = 1_000
"""Maximum different zones and locales; beyond the most frequent ones, only the sum is counted."""


class Counted(Struct, frozen=True, kw_only=True):
    """The counts of an audience, in devices except for `users`.

    `zones` and `locales` are as in the push table, with NULL, and contain the most frequent ones. `scanned` counts rows
    of the table, kept by the filters or not, and `total` is their number from the catalogue or the keys; for a file,
    both are bytes. `exact`: everything was read. `users` of a table is exact up to a million. `unknown` counts a file's
    users without a device, and `repeated` the rows that repeat an earlier user. The longest token and user id are in
    bytes. `indexed`: the table has an index on its keys, or on its users if the audience is a file. `lacks_header`: the
    file's first line seems to be a user.
    """

    devices: int = 0
    users: int = 0
    without_token: int = 0
    zones: Mapping[str | None, int] = {}
    locales: Mapping[str | None, int] = {}
    scanned: int = 0
    total: int = 0
    exact: bool = False
    indexed: bool = True
    longest_token: int = 0
    longest_user: int = 0
    unknown: int = 0
    repeated: int = 0
    lacks_header: bool = False

    def estimate(self, found: int) -> int | None:
        """The estimated total if `found` are in the scanned part; `None` if nothing was scanned."""
        if self.exact:
            return found
        return round(found * max(self.total, self.scanned) / self.scanned) if self.scanned else None

    def by_zone(self, rules: ZoneRules) -> dict[str, int]:
        found: Counter[str] = Counter()
        for text, devices in self.zones.items():
            found[zone_of(text, rules)] += devices
        if unlisted := self.devices - found.total():
            found[REST] += unlisted
        return dict(found)

    def rest_values(self) -> list[str | None]:
        rest = {text: devices for text, devices in self.zones.items() if text is None or read_zone(text) is None}
        return [text for text, _ in Counter(rest).most_common(SHOWN_VALUES)]

    def with_slice(self, found: "Counted", *, repeated: int, upto: int) -> "Counted":
        """These counts plus those of a file's next users, up to the byte `upto`."""
        return replace(
            self,
            devices=self.devices + found.devices,
            users=self.users + found.users,
            without_token=self.without_token + found.without_token,
            zones=frequent_zones(Counter(self.zones) + Counter(found.zones)),
            locales=frequent(Counter(self.locales) + Counter(found.locales)),
            scanned=upto,
            indexed=found.indexed,
            longest_token=max(self.longest_token, found.longest_token),
            longest_user=max(self.longest_user, found.longest_user),
            unknown=self.unknown + found.unknown,
            repeated=self.repeated + repeated,
        )


def frequent(found: Counter[str | None]) -> Counter[str | None]:
    return found if len(found) <= TEXTS else Counter(dict(found.most_common(TEXTS)))


def frequent_zones(found: Counter[str | None]) -> Counter[str | None]:
    """The most frequent texts of zones, up to `TEXTS`: those that name a zone before all others."""
    if len(found) <= TEXTS:
        return found
    named = sorted(found, key=lambda text: (text is None or read_zone(text) is None, -found[text]))
    return Counter({text: found[text] for text in named[:TEXTS]})
