"""`/signing-secrets`: a secret of its own for each namespace, by which receivers tell whose callback they got."""

from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from msgspec import Struct

from services.api.accounts.namespaces import NAMESPACE, namespace_of
from services.api.http import wire
from services.api.http.rights import OWN_NAMESPACE
from services.api.http.routes import Resource, Route
from services.api.http.wire import Timestamp
from shared.domain.instants import format_instant
from shared.flow.accounts.signing import Signing


class SigningSecretView(Struct, frozen=True):
    """A new secret, which is never shown again. The former secret signs beside it until `alone_from`."""

    namespace: str
    version: int
    secret: str
    alone_from: Timestamp


class SigningSecretsResource(Resource):
    """The route of signing secrets."""

    def __init__(self, signing: Signing) -> None:
        self._signing = signing

    @Route(
        "POST", "/signing-secrets",
        summary="Give a namespace a new signing secret; the answer holds it, for this one time.",
        act="signing-secret.issue", who=OWN_NAMESPACE, answers={HTTPStatus.CREATED: SigningSecretView},
        problems=(HTTPStatus.CONFLICT,), parameters=(NAMESPACE,),
    )  # fmt: skip
    async def issue_signing_secret(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        issued = await self._signing.issue(namespace_of(request))
        view = SigningSecretView(issued.namespace, issued.version, issued.secret, format_instant(issued.alone_from))
        return wire.answer(view, HTTPStatus.CREATED)
