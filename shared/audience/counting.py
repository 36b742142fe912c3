"""Counting an audience within a time limit: bounded statements, each from where the last one ended.

The first statements are small, so that a slow table also gives a result in time; they grow to the usual size. The
server hashes the users, so that no user id leaves it.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from shared.domain.audience.audiences import BEGINNING
from shared.domain.audience.counts import Counted, frequent, frequent_zones
from shared.domain.audience.distinct import Distinct

FIRST_SCAN = 1 / 16
GROWTH = 4

Ask = Callable[[int, int, int], Awaitable[Sequence[Any]]]
"""The rows of `statements.tally` after one key, up to another, for a number of rows of the table."""


class Tally:
    """The counts so far, complete up to the key `upto`."""

    def __init__(self) -> None:
        self.upto = BEGINNING
        self.scanned = 0
        self._first = 0
        self._devices = 0
        self._without_token = 0
        self._longest_token = 0
        self._longest_user = 0
        self._zones: Counter[str | None] = Counter()
        self._locales: Counter[str | None] = Counter()
        self._users = Distinct()

    def add(self, page: Sequence[Any]) -> None:
        if not page:
            return
        self._first = self._first if self.scanned else min(group["first"] for group in page)
        self.upto = max(group["upto"] for group in page)
        self.scanned += sum(group["devices"] for group in page)
        kept = [group for group in page if group["kept"]]
        for group in kept:
            self._devices += group["devices"]
            self._without_token += group["devices"] - group["reachable"]
            self._zones[group["zone"]] += group["devices"]
            self._locales[group["locale"]] += group["devices"]
            self._longest_token = max(self._longest_token, group["longest_token"] or 0)
            self._longest_user = max(self._longest_user, group["longest_user"] or 0)
        self._users.add(b"".join(group["users"] or b"" for group in kept))
        self._zones, self._locales = frequent_zones(self._zones), frequent(self._locales)

    def result(self, *, highest: int, rows: int, exact: bool, indexed: bool) -> Counted:
        """The sums. `highest` is the greatest key, `rows` the catalogue's estimate of the table's rows, if it has
        one."""
        return Counted(
            devices=self._devices,
            users=self._users.count,
            without_token=self._without_token,
            zones=dict(self._zones),
            locales=dict(self._locales),
            scanned=self.scanned,
            total=self.scanned if exact else rows if rows > 0 else self._by_keys(highest),
            exact=exact,
            indexed=indexed,
            longest_token=self._longest_token,
            longest_user=self._longest_user,
        )

    def _by_keys(self, highest: int) -> int:
        """The rows of the table, if its keys are as dense everywhere as in the scanned part."""
        if not self.scanned:
            return 0
        return round(self.scanned * (highest - self._first + 1) / (self.upto - self._first + 1))


async def scan(ask: Ask, tally: Tally, *, upto: int, scan_rows: int, deadline: float) -> None:
    """Go on counting up to the key `upto`. At the `deadline` (the loop's clock) the tally holds the counts so far."""
    size = max(1, round(scan_rows * FIRST_SCAN))
    while tally.upto < upto:
        async with asyncio.timeout_at(deadline):
            page = await ask(tally.upto, upto, size)
        before = tally.scanned
        await asyncio.to_thread(tally.add, page)  # sorting a million hashes takes a tenth of a second
        if tally.scanned - before < size:
            return
        size = min(size * GROWTH, scan_rows)
