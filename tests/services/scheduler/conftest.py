"""The flow of schedules on a store."""

from tests.flow.conftest import flow

__all__ = ["flow"]
