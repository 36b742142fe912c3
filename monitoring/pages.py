"""The list of `docs/metrics.md`, printed from the list of metrics and from the dashboards."""

import re
import textwrap
from collections.abc import Iterator

from prometheus_client.metrics import MetricWrapperBase

from monitoring.dashboards import DASHBOARDS
from shared.runtime import metrics

_MARKS = re.compile(r"(<!-- metrics -->\n).*?(<!-- end -->)", re.DOTALL)


def our_metrics() -> list[MetricWrapperBase]:
    """All of Carillon's own, in the order of the list."""
    return [value for value in vars(metrics).values() if isinstance(value, MetricWrapperBase)]


def sample_name(metric: MetricWrapperBase) -> str:
    """Its name on the page: a counter's ends in `_total`."""
    [family] = metric.describe()
    return f"{family.name}_total" if family.type == "counter" else family.name


def labels_of(metric: MetricWrapperBase) -> tuple[str, ...]:
    """The names of its labels."""
    return tuple(metric._labelnames)  # noqa: SLF001 - the library shows them of no metric that nobody has set


def dashboards_with(name: str) -> list[str]:
    """The dashboards that show this metric."""
    word = re.compile(rf"\b{name}(_bucket|_sum|_count)?\b")
    return [
        dashboard
        for dashboard, panels in DASHBOARDS.items()
        if any(word.search(expression) for panel in panels for expression in panel.lines.values())
    ]


def with_metrics(page: str) -> str:
    """The page with its list printed anew."""
    return _MARKS.sub(lambda found: found[1] + "\n".join(_list()) + "\n" + found[2], page)


def _list() -> Iterator[str]:
    for metric in our_metrics():
        [family] = metric.describe()
        name = sample_name(metric)
        labels = ", ".join(f"`{label}`" for label in labels_of(metric))
        by = f" by {labels}" if labels else ""
        shown = ", ".join(dashboards_with(name)) or "none"
        told = f"`{name}`: {family.type}{by}. {family.documentation} Dashboards: {shown}."
        yield textwrap.fill(f"- {told}", 150, subsequent_indent="  ", break_on_hyphens=False)
