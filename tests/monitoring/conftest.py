"""The house of processes."""

from tests.e2e.conftest import house  # noqa: F401
