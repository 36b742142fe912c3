"""Which of a test's values `make test` leaves to `make storm`."""

from typing import Any

import pytest


def and_rarely(*usual: Any, rarely: tuple[Any, ...]) -> list[Any]:
    """Values of a parametrized test. The last ones take long and show the same protocol at one more point, so they are
    `slow`; the simulations pass through all of these points in every run."""
    return [*usual, *(pytest.param(value, marks=pytest.mark.slow) for value in rarely)]
