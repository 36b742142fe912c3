"""Deleting an app with all data that subjects have stored for it.

    idle? ──> takes nothing new ──> idle? ──> noted ──> secrets, templates ──> the rest, in steps ──> idle? ──> the app

A noted removal is finished: a request does as much as fits, upkeep does the rest. Until then the app exists, and its
name and ids are taken.
"""

import time
from collections.abc import Sequence

import structlog

from shared.domain.accounts.apps import App
from shared.domain.errors import Conflict
from shared.flow.accounts.belongings import Belongings
from shared.runtime.faults import fault
from shared.runtime.loops import Swept
from shared.store import Store

log = structlog.get_logger(__name__)

REQUEST_SECONDS = 5.0
ROUND_SECONDS = 20.0


class AppRemoval:
    """Deletes apps."""

    def __init__(self, store: Store, belongings: Sequence[Belongings]) -> None:
        self._store = store
        self._belongings = belongings

    async def remove(self, app: App, *, seconds: float = REQUEST_SECONDS) -> bool:
        """Delete the app for at most `seconds`; returns whether it is gone. It accepts no new work from now on; another
        call continues. Raises `Conflict` if it has unfinished work."""
        await self._check_idle(app.id)
        await self._store.apps.begin_removal(app.id)
        for owned in self._belongings:
            await owned.withdraw(app.id)
        # Work that was begun before is visible now; work begun later finds the app being deleted.
        await self._check_idle(app.id)
        await self._store.apps.confirm_removal(app.id)
        return await self._go_on(app.id, time.monotonic() + seconds)

    async def run_once(self) -> Swept:
        """Continue deletions that were cut off."""
        gone, deadline = 0, time.monotonic() + ROUND_SECONDS
        for app_id in await self._store.apps.find_confirmed():
            try:
                gone += await self._go_on(app_id, deadline)
            except Conflict as refused:
                log.warning("an app that is being deleted has work again", app_id=app_id, reason=refused.reason)
        return Swept(discarded=gone)

    async def _go_on(self, app_id: str, deadline: float) -> bool:
        await self._check_idle(app_id)
        for owned in self._belongings:
            await owned.remove_at_once(app_id)
        await fault("removal.after_secrets")
        for owned in self._belongings:
            while await owned.remove_some(app_id):
                await fault("removal.after_step")
                if time.monotonic() > deadline:
                    return False
        # Work whose maker died before its own check is not forgotten either. Without templates it never begins later.
        await self._check_idle(app_id)
        await fault("removal.before_end")
        await self._store.apps.remove(app_id)
        return True

    async def _check_idle(self, app_id: str) -> None:
        for owned in self._belongings:
            await owned.check_idle(app_id)
