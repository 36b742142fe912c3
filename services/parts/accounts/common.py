"""The part of accounts that several processes share."""

from collections.abc import Mapping
from functools import cached_property

from services.parts import Check, Part
from shared.flow.accounts import AppRemoval, Signing
from shared.flow.clock.revocations import RevocationFlow
from shared.outgoing.signing import check_secret


class AccountsPart(Part):
    @cached_property
    def signing(self) -> Signing:
        """Raises `Invalid` if the deployment's secret cannot sign."""
        key = self.settings.callbacks.signing_secret
        if key:
            check_secret(key, "callbacks.signing_secret")
        return Signing(self.store, self.capabilities.time.now, deployment_key=key)

    @cached_property
    def revocations(self) -> RevocationFlow:
        return RevocationFlow(self.store, self.capabilities.time.now, self.parts.on_revoked)

    @cached_property
    def removal(self) -> AppRemoval:
        return AppRemoval(self.store, self.parts.belongings)

    def checks(self, process: str) -> Mapping[str, Check]:
        return {"mongodb": self.store.ping}
