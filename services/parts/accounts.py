"""Accounts: apps, users, tokens, and what callbacks are signed by."""

from collections.abc import Mapping, Sequence
from functools import cached_property

from services.api.accounts.apps import AppsResource
from services.api.accounts.signing_secrets import SigningSecretsResource
from services.api.accounts.tokens import TokensResource
from services.api.accounts.users import UsersResource
from services.api.http.routes import Resource
from services.parts import Check, Part
from shared.flow.accounts.signing import Signing
from shared.flow.clock.revocations import RevocationFlow
from shared.outgoing.signing import check_secret
from shared.runtime.lifecycle import Component
from shared.runtime.loops import Periodic, Swept


class AccountsPart(Part):
    """Accounts: who may call."""

    @cached_property
    def signing(self) -> Signing:
        """What signs callbacks. Raises `Invalid` for a deployment's secret that cannot sign."""
        key = self.settings.callbacks.signing_secret
        if key:
            check_secret(key, "callbacks.signing_secret")
        return Signing(self.store, self.capabilities.time.now, deployment_key=key)

    @cached_property
    def revocations(self) -> RevocationFlow:
        return RevocationFlow(self.store, self.capabilities.time.now)

    def resources(self) -> Sequence[Resource]:
        clock = self.capabilities.clock
        return (
            AppsResource(self.store, clock),
            UsersResource(self.store, self.revocations, clock, first_admin=self.settings.api.first_admin),
            TokensResource(self.store, self.revocations, clock),
            SigningSecretsResource(self.signing),
        )

    def components(self, process: str) -> Sequence[Component]:
        if process != "scheduler":
            return ()
        interval = self.settings.scheduler.sweep_seconds
        return (Periodic("revocations", self._complete_revocations, interval_seconds=interval),)

    async def _complete_revocations(self) -> Swept:
        """Go on with revocations that a dead process left, and pause what requests in flight scheduled after one."""
        return Swept(discarded=await self.revocations.complete_all())

    def checks(self, process: str) -> Mapping[str, Check]:
        return {"mongodb": self.store.ping}

    async def find_faults(self) -> Sequence[str]:
        return [
            f"{len(apps)} apps are called {apps[0].name}, but for case: "
            f"{', '.join(app.id for app in apps)}. They share push tables, and so each reaches the others' users; "
            "an admin should rename all but one."
            for apps in await self.store.apps.find_clashing()
        ]
