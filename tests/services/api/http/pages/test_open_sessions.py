"""Sessions with a page open, which are looked up together."""

from collections import Counter
from collections.abc import Mapping, Sequence

from services.api.http.pages.sessions import STALE_SECONDS, OpenSessions


async def test_sessions_are_looked_up_together() -> None:
    now, looks, there = [0.0], Counter[tuple[str, ...]](), {"a": 1, "b": 2}

    async def find(ids: Sequence[str]) -> Mapping[str, int]:
        looks[tuple(ids)] += 1
        return {id: there[id] for id in ids if id in there}

    pages = OpenSessions(find, monotonic=lambda: now[0])
    assert [await pages.get(id) for id in ("a", "b", "nobody")] == [1, 2, None]
    looks.clear()
    now[0] = STALE_SECONDS
    del there["b"]
    for _ in range(3):
        assert await pages.get("a") == 1
    assert looks == {("a", "b"): 1}
    assert await pages.get("b") is None
