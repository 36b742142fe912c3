"""`client.signing_secrets`: what the caller's HTTP callbacks are signed by."""

from datetime import datetime

from msgspec import Struct

from carillon.addresses import query_of
from carillon.calls import M, Resource, call


class SigningSecret(Struct, frozen=True, kw_only=True):
    """A new secret, which is never shown again. The former secret signs beside it until `alone_from`."""

    namespace: str
    version: int
    secret: str
    alone_from: datetime

    def __repr__(self) -> str:
        """Without the secret: this ends in logs."""
        return f"SigningSecret(namespace={self.namespace!r}, version={self.version})"


class SigningSecrets(Resource[M]):
    """The caller's own, or as an admin those of another `namespace`. All methods raise `CarillonError`."""

    @call
    async def create(self, *, namespace: str = "", reason: str = "") -> SigningSecret:
        """Take a new secret for the HTTP callbacks that have none of their own.

        An attempt whose answer was lost has made one too, which nobody knows; it signs beside this one for a day.
        Raises `Conflict` where the deployment has no signing secret, or where five sign already.
        """
        return await self._post(SigningSecret, "signing-secrets", query=query_of(namespace=namespace), reason=reason)
