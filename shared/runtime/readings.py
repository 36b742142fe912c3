"""This process at this moment, for displays without Prometheus: its release, its metrics, and the work in its hands."""

import math
import time
from collections import Counter as Sums
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from itertools import count as count_up
from itertools import islice

from msgspec import Struct
from prometheus_client import Counter, Histogram

from shared.runtime.metrics import OF_PROCESS, REGISTRY

Labels = Mapping[str, str]
_MICROSECONDS = 1_000_000
INFINITE = "inf"


@cache
def program_version() -> str:
    return version("carillon")


def read_gauge(name: str) -> float:
    """The sum of a gauge over its labels; 0 if there is no such gauge."""
    return sum(read_by_label(name).values())


def read_by_label(name: str, label: str = "") -> Mapping[str, float]:
    """A gauge by the values of one label; without a label, one sum under `""`."""
    sums: defaultdict[str, float] = defaultdict(float)
    for family in REGISTRY.restricted_registry([name]).collect():
        for sample in family.samples:
            sums[sample.labels.get(label, "")] += sample.value
    return sums


def read_memory_bytes() -> int:
    """The resident memory of this process; 0 if the system does not report it."""
    samples = [sample for family in OF_PROCESS.collect() for sample in family.samples]
    return next((int(sample.value) for sample in samples if sample.name == "process_resident_memory_bytes"), 0)


def count_by(counter: Counter, key: Callable[[Labels], str]) -> dict[str, int]:
    """A counter's sums by `key` of the labels; `""` is left out."""
    sums: Sums[str] = Sums()
    for family in counter.collect():
        for sample in family.samples:
            if sample.name.endswith("_total") and (name := key(sample.labels)):
                sums[name] += int(sample.value)
    return dict(sums)


def count(counter: Counter) -> int:
    """A counter's sum over all labels."""
    return sum(count_by(counter, lambda _: "all").values())


def count_buckets(histogram: Histogram) -> dict[str, int]:
    """The count of each bucket of a histogram, by its upper end in microseconds. Not cumulative."""
    counts: dict[str, int] = {}
    for family in histogram.collect():
        below = 0
        for sample in (each for each in family.samples if each.name.endswith("_bucket")):
            bound = float(sample.labels["le"])
            counts[INFINITE if math.isinf(bound) else str(round(bound * _MICROSECONDS))] = int(sample.value) - below
            below = int(sample.value)
    return counts


class HeldThing(Struct, frozen=True):
    """Work in hand: its queue, the id of its subject, and the monotonic second at which it began."""

    what: str
    id: str
    began: float

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


_serials = count_up()
_held: dict[int, HeldThing] = {}


@contextmanager
def hold(what: str, id: str) -> Iterator[None]:
    """Show this as in hand while the block runs."""
    serial = next(_serials)
    _held[serial] = HeldThing(what, id, time.monotonic())
    try:
        yield
    finally:
        del _held[serial]


def oldest(most: int) -> list[HeldThing]:
    return list(islice(_held.values(), most))


def held_count() -> int:
    return len(_held)
