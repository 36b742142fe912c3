"""Counts: the figures of an audience before sending."""

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from shared.domain.audience.zones import REST, SHOWN_VALUES, ZoneRules, read_zone, zone_of

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
