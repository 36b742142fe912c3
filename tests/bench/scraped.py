"""What processes say of themselves on /metrics."""

import asyncio
import urllib.request
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

Samples = Mapping[tuple[str, tuple[str, ...]], float]
"""Values by the sample's name and its labels' values in the order of the labels' names."""


async def scraped(port: int) -> Samples:
    """All samples of the process whose health port this is."""
    text = await asyncio.to_thread(_page, port)
    return {
        (sample.name, tuple(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(samples: Samples, name: str) -> float:
    """The sum of a metric over its labels."""
    return sum(value for (its, _), value in samples.items() if its == name)


def calls(samples: Samples, capability: str, operation: str = "") -> float:
    """How many calls of a capability, or of all whose names begin so, have been made."""
    return sum(
        value
        for (name, labels), value in samples.items()
        if name == "carillon_call_seconds_count" and labels[0].startswith(capability) and operation in {"", labels[1]}
    )


def _page(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text
