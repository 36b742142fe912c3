"""The house of the end-to-end tests, where processes of two versions live together."""

import asyncio
from pathlib import Path

import pytest

from tests.e2e.conftest import hasty, house
from tests.upgrade.release import has_history, tree

__all__ = ["hasty", "house"]


@pytest.fixture
async def release() -> Path:
    """The files of the last release."""
    if not await asyncio.to_thread(has_history):
        pytest.skip("the last release is in the history, which this checkout lacks: git fetch --unshallow")
    return await asyncio.to_thread(tree)
