"""Upkeep of suppressions: none outlives its app for long.

The request that deletes an app deletes as many of its suppressions as fit into it. The others are found here: the rest
of very many, and what a callback or a recipient has told at the same moment.
"""

from shared.runtime.loops import Swept, repeat
from shared.store import Store

_STEP = 1_000


class SuppressionUpkeep:
    """Looks at the apps that suppressions are of."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run_once(self) -> Swept:
        """Forget what is of apps that are gone. Raises `Unavailable`."""
        forgotten, app_id = 0, await self._store.suppressions.find_app()
        while app_id is not None:
            if await self._store.apps.get(app_id) is None:
                forgotten += await self._forget(app_id)
            app_id = await self._store.suppressions.find_app(after=app_id)
        return Swept(discarded=forgotten)

    async def _forget(self, app_id: str) -> int:
        return await repeat(lambda: self._store.suppressions.remove_some_of(app_id, limit=_STEP), while_full=_STEP)
