"""A store and the flow of schedules on it."""

from tests.flow.conftest import flow, store

__all__ = ["flow", "store"]
