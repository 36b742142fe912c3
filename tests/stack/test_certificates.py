"""The stack's certificates, as servers that start side by side find them."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.stack import certificates, places


def test_servers_that_start_at_once_find_the_same_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(places.HOME_VARIABLE, str(tmp_path))

    def read(_: int) -> list[bytes]:
        return [file.read_bytes() for file in certificates.ensure()]

    with ThreadPoolExecutor(8) as pool:
        first, *others = pool.map(read, range(8))
    assert others == [first] * 7
