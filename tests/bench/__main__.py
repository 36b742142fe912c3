"""`python -m tests.bench [--only NAME] [--large] [--write [FILE]]`: how fast it is, on real servers of its own.

Every measure also checks that the work was done right, and the command fails if it was not. It does not fail for being
slow: figures stand beside their targets.
"""

import argparse
import asyncio
import logging
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from shared.core.errors import CarillonError
from tests.bench import (
    accept,
    account_rate,
    bus,
    bus_isolation,
    callbacks,
    claim,
    clock_large,
    console,
    csv_file,
    divide,
    encrypted,
    fairness,
    feedback,
    fire,
    idle,
    large,
    latency,
    lateness,
    ledgers,
    machine,
    messages,
    mongo_build,
    pause,
    plan,
    providers,
    recovery,
    report,
    send,
    singles,
    starts,
)
from tests.bench.place import Place, servers
from tests.bench.report import Measured, Wrong
from tests.bench.schedules import Sizes
from tests.stack import places

Measure = Callable[[Place], Awaitable[Sequence[Measured]]]
ClockMeasure = Callable[[Place, Sizes], Awaitable[Sequence[Measured]]]

_JOBS: dict[str, Measure] = {
    "send": send.measure,
    "plan": plan.measure,
    "csv": csv_file.measure,
    "encrypted": encrypted.measure,
    "latency": latency.measure,
    "pause": pause.measure,
    "feedback": feedback.measure,
    "starts": starts.measure,
    "account-rate": account_rate.measure,
    "callbacks": callbacks.measure,
    "singles": singles.measure,
    "messages": messages.measure,
    "ledgers": ledgers.measure,
    "providers": providers.measure,
    "bus": bus.measure,
    "bus-crashes": bus.measure_crashes,
    "bus-isolation": bus_isolation.measure,
}
_CLOCK: dict[str, ClockMeasure] = {
    "fire": fire.measure,
    "claim": claim.measure,
    "accept": accept.measure,
    "bulk": accept.measure_bulk,
    "wall": fire.measure_wall,
    "lateness": lateness.measure,
    "fairness": fairness.measure,
    "idle": idle.measure,
    "schedulers": fire.measure_schedulers,
    "recovery": recovery.measure,
    "console": console.measure,
}
_LARGE_JOBS: dict[str, Measure] = {"large": large.measure, "divide": divide.measure}
_LARGE_CLOCK: dict[str, ClockMeasure] = {"clock-large": clock_large.measure, "console-large": console.measure_large}
_RESULTS = Path(__file__).with_name("RESULTS.md")
_DEVICES = 1_000_000


def main() -> int:
    """Do what the command line says; 1 if anything was done wrong, 2 if a server is missing."""
    options = _options()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # a topic that is a moment old makes it complain
    command = f"python -m tests.bench {shlex.join(sys.argv[1:])}".strip()
    lines = report.heading(command, machine.described(), mongo_build.chosen())
    print("\n".join(lines), flush=True)
    measures = _chosen(options)
    devices = options.devices or (large.DEVICES if options.large else _DEVICES)
    with servers(keep=options.keep) as endpoints:
        if endpoints.missing:
            print(f"cannot measure: {endpoints.missing}", file=sys.stderr)
            return 2
        failed = asyncio.run(_run(Place(endpoints, devices, options.repeat), measures, lines))
    if options.write:
        report.append(options.write, lines)
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    names = [*_JOBS, *_CLOCK, *_LARGE_JOBS, *_LARGE_CLOCK]
    parser.add_argument("--only", action="append", choices=names, help="measure only this (may be repeated)")
    parser.add_argument(
        "--large", action="store_true", help="one job over an audience of 20 million, a clock with 10 million pending"
    )
    parser.add_argument("--devices", type=int, help="another size of the audience")
    parser.add_argument("--entries", type=float, default=1.0, help="the clock: this share of the usual numbers")
    parser.add_argument("--pending", type=int, help="the clock: another number of entries that are pending")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each measure; their median counts")
    parser.add_argument(
        "--write", nargs="?", type=Path, const=_RESULTS, help="append the figures to this file, or to RESULTS.md"
    )
    parser.add_argument("--keep", action="store_true", help="leave the servers running for the next run")
    return parser.parse_args()


def _chosen(options: argparse.Namespace) -> dict[str, Measure]:
    """What is named, or all of one size."""
    sizes = Sizes().scaled(options.entries)
    if options.pending:
        sizes = replace(sizes, pending=options.pending, large=options.pending)
    clock = {name: _of(sizes, measure) for name, measure in (_CLOCK | _LARGE_CLOCK).items()}
    measures = {**_JOBS, **clock, **_LARGE_JOBS}
    usual = {*_LARGE_JOBS, *_LARGE_CLOCK} if options.large else {*_JOBS, *_CLOCK}
    return {name: measure for name, measure in measures.items() if name in (options.only or usual)}


def _of(sizes: Sizes, measure: ClockMeasure) -> Measure:
    return lambda place: measure(place, sizes)


async def _run(place: Place, measures: Mapping[str, Measure], lines: list[str]) -> bool:
    """Measure, print, and add to the lines of the report; whether something was wrong."""
    failed = False
    for name, measure in measures.items():
        places.say(f"measuring: {name}")
        try:
            found = _lines(await measure(place))
        except (Wrong, AssertionError, TimeoutError, CarillonError) as fault:
            before = fault.found if isinstance(fault, Wrong) else ()
            found, failed = [*_lines(before), f"### {name}: WRONG", "", str(fault), ""], True
        print("\n".join(found), flush=True)
        lines += found
    return failed


def _lines(found: Sequence[Measured]) -> list[str]:
    return [line for measured in found for line in measured.lines()]


if __name__ == "__main__":
    sys.exit(main())
