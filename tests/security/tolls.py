"""What attacks cost the process, the bounds of that, and how it is shown at the end of a run.

The gate does not judge costs: how long something takes says how busy the machine is. The rest does, with wide bounds
and while no other test runs. Storms do, with the bounds that we promise.
"""

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from math import inf
from operator import attrgetter

import pytest

_MIB = 2**20
_MEASURES = ("loop_seconds", "loop_time", "livez_seconds", "peak_bytes")
_PROPERTY = "toll"


@dataclass(frozen=True)
class Bounds:
    """The most that an attack may cost: processor time of the loop without a turn, time, and memory."""

    loop_seconds: float = inf
    answer_seconds: float = inf
    peak_bytes: float = inf


NONE = Bounds()
WIDE = Bounds(loop_seconds=4.0, answer_seconds=10.0, peak_bytes=512 * _MIB)
STRICT = Bounds(loop_seconds=0.25, answer_seconds=1.0, peak_bytes=512 * _MIB)


@dataclass(frozen=True)
class Toll:
    """What an attack cost: the longest stretch of the loop's thread without a turn, in processor time and in time, the
    longest answer of `/livez`, and the most memory."""

    attack: str
    loop_seconds: float
    loop_time: float
    livez_seconds: float
    peak_bytes: int

    def faults(self, bounds: Bounds) -> list[str]:
        """What is over its bound."""
        found = []
        if self.loop_seconds > bounds.loop_seconds:
            found.append(f"the loop stood still for {self.loop_seconds:.2f} s of its own processor time")
        if self.peak_bytes > bounds.peak_bytes:
            found.append(f"the process had {self.peak_bytes / _MIB:.0f} MiB")
        if self.livez_seconds > bounds.answer_seconds:
            found.append(f"/livez took {self.livez_seconds:.2f} s")
        if self.loop_time > bounds.answer_seconds:
            found.append(f"the loop stood still for {self.loop_time:.2f} s")
        return found

    def __str__(self) -> str:
        return (
            f"loop {self.loop_seconds * 1e3:5.0f} ms of processor, {self.loop_time * 1e3:6.0f} ms of time; "
            f"/livez {self.livez_seconds * 1e3:6.0f} ms; {self.peak_bytes / _MIB:5.0f} MiB"
        )


def note(item: pytest.Item, tolls: Iterable[Toll]) -> None:
    """Send them with the item's report, whichever worker makes it."""
    item.user_properties += [(_PROPERTY, astuple(toll)) for toll in tolls]


def show(reporter: pytest.TerminalReporter) -> None:
    """Show the worst of them, or after a storm all."""
    tolls = [
        Toll(*toll)
        for report in reporter.getreports("")  # where pytest puts what went well before and after a test
        for name, toll in getattr(report, "user_properties", ())
        if name == _PROPERTY and report.when == "teardown"
    ]
    if not tolls:
        return
    reporter.section("what the attacks cost the API")
    for toll in tolls if reporter.config.getoption("--storm", default=False) else _worst(tolls):
        reporter.write_line(f"{toll}  {toll.attack}")


def _worst(tolls: list[Toll]) -> list[Toll]:
    """The worst by each measure."""
    return list({max(tolls, key=attrgetter(name)): None for name in _MEASURES})
