"""Accounts in the API: routes and pages."""

from collections.abc import Sequence

from services.api.accounts.apps import AppsResource, SigningSecretsResource
from services.api.accounts.pages.access import AccessPages, AppPages
from services.api.accounts.tokens import TokensResource
from services.api.accounts.users import SessionsResource, UsersResource, WhoamiResource
from services.api.http.pages.routes import PageSet
from services.api.http.routes import Resource
from services.parts import Part
from services.parts.accounts.common import AccountsPart


class AccountsApi(Part):
    def resources(self) -> Sequence[Resource]:
        accounts, clock = self.parts.of(AccountsPart), self.capabilities.clock
        return (
            AppsResource(self.store, clock, accounts.removal),
            UsersResource(self.store, accounts.revocations, clock, first_admin=self.settings.api.first_admin),
            TokensResource(self.store, accounts.revocations, clock),
            SessionsResource(self.store, clock),
            SigningSecretsResource(accounts.signing),
            WhoamiResource(self.settings.audit),
        )

    def pages(self) -> Sequence[PageSet]:
        return (AppPages(), AccessPages())
