"""What a process has opened is closed."""

import pytest

from services.wiring.servers import Servers
from shared.runtime.configuration import load


class Connection:
    def __init__(self, name: str, closed: list[str], *, breaks: bool) -> None:
        self._name, self._closed, self._breaks = name, closed, breaks

    async def close(self) -> None:
        self._closed.append(self._name)
        if self._breaks:
            raise OSError(f"{self._name} breaks")


@pytest.mark.parametrize("breaking", ["outgoing", "broker", "store"])
async def test_all_that_is_open_is_closed_though_one_fails_to(breaking: str) -> None:
    closed: list[str] = []
    names = ("store", "broker", "outgoing")
    given = {name: Connection(name, closed, breaks=name == breaking) for name in names}
    with pytest.raises(OSError, match=f"{breaking} breaks"):
        await Servers(load({}), service="test", **given).close()
    assert closed == ["outgoing", "broker", "store"]
