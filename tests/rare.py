"""Which of a test's values and examples `make test` leaves to `make storm`."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings

_PART = 3
_FEW = 20


def and_rarely(*usual: Any, rarely: Sequence[Any]) -> list[Any]:
    """Values of a parametrized test. The last ones take long and show the same protocol at one more point, so they are
    `slow`; the simulations pass through all of these points in every run."""
    return [*usual, *(pytest.param(value, marks=pytest.mark.slow) for value in rarely)]


def try_fewer_examples(items: Sequence[pytest.Item]) -> None:
    """Try each property with a third of its examples, but with 20 at least."""
    tests = {test for item in items if (test := getattr(item, "function", None)) is not None}
    for test in tests:
        if chosen := getattr(test, "_hypothesis_internal_use_settings", None):
            most = max(chosen.max_examples // _PART, min(chosen.max_examples, _FEW))
            vars(test)["_hypothesis_internal_use_settings"] = settings(chosen, max_examples=most)
