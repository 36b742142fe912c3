"""Answers of the bus's receivers, in words."""

from typing import Any

from services.cli.output.out import Output
from services.cli.output.tables import Json


def describe_answer(attempt: Json) -> str:
    """The error of one call, or its answer."""
    return str(attempt["error"] or f"{attempt['status']} {attempt['excerpt']}".strip())


def describe_last_answer(item: Json) -> str:
    """The answer to the last call of a delivery or a dead letter, if any."""
    return describe_answer(item["attempts"][-1]) if item["attempts"] else ""


def describe_sent(out: Output, item: Json) -> list[tuple[str, Any]]:
    """The fields of a delivery or a dead letter: instants in the reader's zone, calls in words."""
    told = {name: out.when(each) if each and name.endswith("_at") else each for name, each in item.items()}
    calls = [f"{out.when(each['at'])}, {each['ms']:,} ms: {describe_answer(each)}" for each in item["attempts"]]
    return list((told | {"attempts": calls}).items())
