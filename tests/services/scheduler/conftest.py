"""The flow of schedules on a store."""

from tests.models.conftest import flow

__all__ = ["flow"]
