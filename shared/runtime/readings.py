"""The metrics of this process at this moment, for people who are told without Prometheus."""

import math
from collections import Counter as Sums
from collections import defaultdict
from collections.abc import Callable, Mapping

from prometheus_client import Counter, Histogram

from shared.runtime.metrics import OF_PROCESS, REGISTRY

Labels = Mapping[str, str]
_MICROSECONDS = 1_000_000
INFINITE = "inf"


def read_gauge(name: str) -> float:
    """The sum of a gauge over its labels; 0 where there is none of this name."""
    return sum(read_by_label(name).values())


def read_by_label(name: str, label: str = "") -> Mapping[str, float]:
    """A gauge by the values of one label; all as one without a label."""
    sums: defaultdict[str, float] = defaultdict(float)
    for family in REGISTRY.restricted_registry([name]).collect():
        for sample in family.samples:
            sums[sample.labels.get(label, "")] += sample.value
    return sums


def read_memory_bytes() -> int:
    """The resident memory of this process; 0 where the system does not tell."""
    samples = [sample for family in OF_PROCESS.collect() for sample in family.samples]
    return next((int(sample.value) for sample in samples if sample.name == "process_resident_memory_bytes"), 0)


def count_by(counter: Counter, key: Callable[[Labels], str]) -> dict[str, int]:
    """A counter's sums by what `key` makes of the labels; what it calls `""` is left out."""
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
    """The counts of a histogram by the upper end of each bucket in microseconds, without the buckets below it."""
    counts: dict[str, int] = {}
    for family in histogram.collect():
        below = 0
        for sample in (each for each in family.samples if each.name.endswith("_bucket")):
            counts[_bound(float(sample.labels["le"]))] = int(sample.value) - below
            below = int(sample.value)
    return counts


def _bound(seconds: float) -> str:
    return INFINITE if math.isinf(seconds) else str(round(seconds * _MICROSECONDS))
