"""`/credentials/reencrypt`: the last step but one of replacing a key of `providers.secret_keys`."""

from http import HTTPStatus

from litestar import Response
from msgspec import Struct

from services.api.http import wire
from services.api.http.rights import ADMIN
from services.api.http.routes import Resource, Route
from shared.flow.messages.credentials import CredentialFlow

AT_ONCE = 500


class ReencryptedView(Struct, frozen=True):
    """How many secrets were encrypted anew by this request, how many are still under older keys, and how many of these
    no key opens."""

    reencrypted: int
    remaining: int
    unreadable: int


class SecretKeysResource(Resource):
    """The route of the keys of secrets."""

    def __init__(self, flow: CredentialFlow) -> None:
        self._flow = flow

    @Route(
        "POST", "/credentials/reencrypt",
        summary=f"Encrypt up to {AT_ONCE} secrets of credentials under the first key that are under older ones. Once "
                "none remain, the older keys are needed no more.",
        act="credential.reencrypt", who=ADMIN, answers={HTTPStatus.OK: ReencryptedView},
    )  # fmt: skip
    async def reencrypt_credentials(self) -> Response[bytes]:
        done = await self._flow.reseal(most=AT_ONCE)
        return wire.answer(ReencryptedView(done.resealed, done.remaining, done.unreadable))
