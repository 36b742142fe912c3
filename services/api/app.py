"""The API as one ASGI application: the resources that it is given, behind what stands before every route.

The server in front must not rewrite the peer's address from `x-forwarded-for` (uvicorn: `proxy_headers=False`): who
may name a person is decided by the address that the connection really comes from.
"""

from collections.abc import Sequence
from typing import Any

from litestar import Litestar, Request, Response
from litestar.exceptions import MethodNotAllowedException, NotFoundException

from services.api.http import errors
from services.api.http.acts import ACTS, Acts
from services.api.http.bodies import Bodies
from services.api.http.documentation import DocumentationResource
from services.api.http.guards import Guarded, guard_rules
from services.api.http.identity import Directory, IdentifyCaller, has_caller
from services.api.http.limits import Limited
from services.api.http.observed import Observed
from services.api.http.paging import PUBLIC_PATH, public_path
from services.api.http.rights import protected_paths
from services.api.http.routes import Resource
from shared.runtime.settings import ApiSettings

Application = Litestar
"""What `create` makes: an ASGI application."""


def create(resources: Sequence[Resource], directory: Directory, acts: Acts, settings: ApiSettings) -> Application:
    """The application, whose callers stand in the directory."""
    handlers = [handler for resource in resources for handler in resource.handlers()]
    app = Litestar(
        route_handlers=[*handlers, *DocumentationResource(handlers, public_url=settings.public_url).handlers()],
        exception_handlers={MethodNotAllowedException: _refuse_method, Exception: errors.refuse},
        request_max_body_size=settings.max_body_bytes,
        openapi_config=None,
        logging_config=None,
    )
    app.state[ACTS] = acts
    app.state[PUBLIC_PATH] = public_path(settings.public_url)
    bodies = Bodies(Limited(app.asgi_handler, settings), settings.max_bodies_bytes)
    identified = IdentifyCaller(bodies, directory, protected_paths(handlers))
    app.asgi_handler = Observed(Guarded(identified, guard_rules(settings)))
    return app


def _refuse_method(request: Request[Any, Any, Any], error: MethodNotAllowedException) -> Response[bytes]:
    """Below the protected paths Marathon answers 404 to a method that it does not know."""
    return errors.refuse(request, NotFoundException() if has_caller(request) else error)
