"""The documents that were recorded are read by this code, and written back as they were."""

import pytest

from shared.store import Store
from tests.recorded.readable import read_back
from tests.recorded.recorder import check

pytestmark = pytest.mark.recorded

__all__ = ["Store"]  # with it all of its codecs are loaded


def test_recorded_documents_are_read_and_written_back_as_they_were() -> None:
    check({"readable/kinds.txt": read_back()}, "readable")
