"""`python -m tests.bench.pairs OTHER [--only NAME] [--pairs N] [--write [FILE]]`: this checkout against another one.

Both run in turns on the same servers, this one first in every other pair. What a machine does meanwhile meets both
alike, so the ratio of a pair tells more than two medians do. A measure fails only where all of the interval of the
median ratio lies above the bound. `OTHER` is the folder of a checkout in which `make .venv/.dev-ready` was run.
`CARILLON_TEST_MONGO_BINARY` chooses the build of MongoDB's stand-in.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from math import comb
from pathlib import Path
from statistics import median

from msgspec import Struct

from tests.bench import machine, report
from tests.stack.mongodb import BINARY_VARIABLE

_HERE = Path(__file__).resolve().parents[2]
_RUN = Path(__file__).with_name("one_run.py")
_RESULTS = Path(__file__).with_name("RESULTS.md")
_SIZES = {
    "send": 500_000, "messages": 15_000, "bus": 40_000, "csv": 300_000,
    "fire": 10_000, "claim": 50_000, "accept": 8_000, "bulk": 2_000, "lateness": 3_000,
    "fairness": 3_000,
}  # fmt: skip
_MOST = 1.03
_CONFIDENCE = 0.95


class Pair(Struct, frozen=True):
    """The figures of one run of each."""

    here: dict[str, float]
    there: dict[str, float]

    def ratio(self, name: str) -> float:
        """Of this checkout's figure to the other one's."""
        return self.here[name] / self.there[name]


def main() -> int:
    """Do what the command line says; 1 if anything became worse by more than the bound, for certain."""
    options = _options()
    lines = report.heading(f"python -m tests.bench.pairs {options.name}", machine.described(), _build())
    print("\n".join(lines), flush=True)
    worse = False
    for name in options.only or _SIZES:
        pairs = [_pair(name, options.other, first=bool(number % 2)) for number in range(options.pairs)]
        told = _told(name, pairs)
        print("\n".join(told), flush=True)
        lines += told
        worse |= interval([pair.ratio("CPU seconds") for pair in pairs])[0] > _MOST
    if options.write:
        report.append(options.write, lines)
    return int(worse)


def _build() -> str:
    return f"the build that {BINARY_VARIABLE} names" if os.environ.get(BINARY_VARIABLE) else "the wheel's build"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.pairs", description=__doc__)
    parser.add_argument("other", type=Path, help="the folder of the other checkout")
    parser.add_argument("--name", default="OTHER", help="what to call it in the report")
    parser.add_argument("--only", action="append", choices=[*_SIZES], help="measure only this (may be repeated)")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--write", nargs="?", type=Path, const=_RESULTS, help="append to this file, or to RESULTS.md")
    return parser.parse_args()


def _pair(name: str, other: Path, *, first: bool) -> Pair:
    if first:
        here = _run(name, _HERE)
        return Pair(here, _run(name, other))
    there = _run(name, other)
    return Pair(_run(name, _HERE), there)


def _run(name: str, checkout: Path) -> dict[str, float]:
    command = [str(checkout / ".venv/bin/python"), "-c", _RUN.read_text(), name, str(_SIZES[name])]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} in {checkout}: {done.stderr[-2_000:]}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(f"{name} {checkout.name}: {figures}", file=sys.stderr, flush=True)
    return figures


def _told(name: str, pairs: Sequence[Pair]) -> list[str]:
    lines = [f"### {name}: {len(pairs)} pairs of {_SIZES[name]:,}", "", "| figure | ratio | 95 % | here | there |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for figure in pairs[0].here:
        ratios = [pair.ratio(figure) for pair in pairs]
        low, high = interval(ratios)
        here, there = median(pair.here[figure] for pair in pairs), median(pair.there[figure] for pair in pairs)
        lines.append(f"| {figure} | {median(ratios):.3f} | {low:.3f} to {high:.3f} | {here:,.2f} | {there:,.2f} |")
    return [*lines, ""]


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Of the median, by the ranks of the ratios: whatever their distribution. All of them, where they are too few."""
    ordered, count = sorted(ratios), len(ratios)
    rank = 0
    while 1 - 2 * sum(comb(count, below) for below in range(rank + 2)) / 2**count >= _CONFIDENCE:
        rank += 1
    return ordered[rank], ordered[count - 1 - rank]


if __name__ == "__main__":
    sys.exit(main())
