"""Accounts in schedulers."""

from collections.abc import Sequence

from services.parts import Part
from services.parts.accounts.common import AccountsPart
from shared.runtime.lifecycle import Component
from shared.runtime.loops import Periodic, Swept


class AccountsScheduler(Part):
    def components(self, process: str) -> Sequence[Component]:
        if process != "scheduler":
            return ()
        chosen = self.settings.scheduler
        return (
            Periodic("revocations", self._complete_revocations, interval_seconds=chosen.sweep_seconds),
            Periodic(
                "deleted apps", self.parts.of(AccountsPart).removal.run_once, interval_seconds=chosen.retention_seconds
            ),
            Periodic("sessions that are over", self._forget_sessions, interval_seconds=chosen.retention_seconds),
        )

    async def _complete_revocations(self) -> Swept:
        """Continue revocations of dead processes, and pause schedules that requests in flight stored after one."""
        return Swept(discarded=await self.parts.of(AccountsPart).revocations.complete_all())

    async def _forget_sessions(self) -> Swept:
        return Swept(discarded=await self.store.sessions.remove_over(await self.capabilities.time.now()))
