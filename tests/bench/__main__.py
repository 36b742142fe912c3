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

from shared.domain.errors import CarillonError
from tests.bench import feedback, large, latency, machine, mongo_build, pause, plan, report, send
from tests.bench.place import Place, servers
from tests.bench.report import Measured, Wrong
from tests.stack import places

Measure = Callable[[Place], Awaitable[Sequence[Measured]]]

_MEASURES: dict[str, Measure] = {
    "send": send.measure,
    "plan": plan.measure,
    "latency": latency.measure,
    "pause": pause.measure,
    "feedback": feedback.measure,
}
_RESULTS = Path(__file__).with_name("RESULTS.md")
_DEVICES = 1_000_000


def main() -> int:
    """Do what the command line says; 1 if anything was done wrong, 2 if a server is missing."""
    options = _options()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # a topic that is a moment old makes it complain
    command = f"python -m tests.bench {shlex.join(sys.argv[1:])}".strip()
    lines = report.heading(command, machine.described(), mongo_build.chosen())
    print("\n".join(lines), flush=True)
    measures = {"large": large.measure} if options.large else _chosen(options.only)
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
    parser.add_argument("--only", action="append", choices=[*_MEASURES], help="measure only this (may be repeated)")
    parser.add_argument("--large", action="store_true", help="one job over an audience of 20 million")
    parser.add_argument("--devices", type=int, help="another size of the audience")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each measure; their median counts")
    parser.add_argument(
        "--write", nargs="?", type=Path, const=_RESULTS, help="append the figures to this file, or to RESULTS.md"
    )
    parser.add_argument("--keep", action="store_true", help="leave the servers running for the next run")
    return parser.parse_args()


def _chosen(only: Sequence[str] | None) -> dict[str, Measure]:
    return {name: measure for name, measure in _MEASURES.items() if not only or name in only}


async def _run(place: Place, measures: Mapping[str, Measure], lines: list[str]) -> bool:
    """Measure, print, and add to the lines of the report; whether something was wrong."""
    failed = False
    for name, measure in measures.items():
        places.say(f"measuring: {name}")
        try:
            found = [line for measured in await measure(place) for line in measured.lines()]
        except (Wrong, AssertionError, TimeoutError, CarillonError) as fault:
            found, failed = [f"### {name}: WRONG", "", str(fault), ""], True
        print("\n".join(found), flush=True)
        lines += found
    return failed


if __name__ == "__main__":
    sys.exit(main())
