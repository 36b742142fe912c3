"""Upkeep of suppressions: remove those whose app is gone.

The request that deletes an app deletes as many of its suppressions as fit. This finds the others: the rest of very
many, and those that a callback or a recipient added at the same moment.
"""

from functools import partial

from shared.runtime.loops import Swept, repeat
from shared.store import Store

_STEP = 1_000


class SuppressionUpkeep:
    """Checks the apps of suppressions."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run_once(self) -> Swept:
        forgotten, app_id = 0, await self._store.suppressions.find_app()
        while app_id is not None:
            if await self._store.apps.get(app_id) is None:
                forget = partial(self._store.suppressions.remove_some_of, app_id, limit=_STEP)
                forgotten += await repeat(forget, while_full=_STEP)
            app_id = await self._store.suppressions.find_app(after=app_id)
        return Swept(discarded=forgotten)
