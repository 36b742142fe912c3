"""The flow of schedules on a store."""

from tests.clock.conftest import flow

__all__ = ["flow"]
