"""The house of the end-to-end tests, to be set on fire."""

from tests.e2e.conftest import hasty, house

__all__ = ["hasty", "house"]
