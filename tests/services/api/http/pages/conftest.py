"""Fixtures of the pages."""

from collections.abc import Iterator

import pytest

from tests.commands import Commands, count_commands


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    with pytest.MonkeyPatch.context() as patch:
        yield count_commands(patch)
