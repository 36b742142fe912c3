"""`/whoami`: what the API takes its caller for, and what they may do."""

from http import HTTPStatus
from typing import Any, Literal

from litestar import Request, Response
from msgspec import Struct

from services.api.http import wire
from services.api.http.identity import caller_of
from services.api.http.rights import KNOWN
from services.api.http.routes import Resource, Route
from shared.domain.accounts.roles import Role
from shared.runtime.settings import AuditSettings


class CallerView(Struct, frozen=True, kw_only=True, rename="camel"):
    """The caller. `namespace` owns their schedules, `allowedApps` are apps whose admin they are, and `roles` are what
    else they may do. An admin (`isAdmin`) needs neither. `reasons` says whether they have to give one
    (`X-Carillon-Reason`) to stop, delete, cancel, discard, revoke or purge something."""

    namespace: str
    name: str
    is_admin: bool
    allowed_apps: list[str]
    roles: dict[str, Role]
    reasons: Literal["optional", "required"]


class WhoamiResource(Resource):
    """The route that tells callers who they are."""

    def __init__(self, settings: AuditSettings) -> None:
        self._reasons = settings.reasons

    @Route(
        "GET", "/whoami", summary="Show who the caller is, and what they may do.",
        who=KNOWN, answers={HTTPStatus.OK: CallerView},
    )  # fmt: skip
    async def get_caller(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        caller = caller_of(request)
        view = CallerView(
            namespace=caller.namespace,
            name=caller.name,
            is_admin=caller.is_admin,
            allowed_apps=sorted(caller.allowed_apps),
            roles=dict(caller.roles),
            reasons=self._reasons,
        )
        return wire.answer(view)
