"""The API as one ASGI application: the resources that it is given, behind the middleware of every route.

The server in front must not rewrite the peer's address from `x-forwarded-for` (uvicorn: `proxy_headers=False`): who
may name a person is decided by the address that the connection really comes from.
"""

from collections.abc import Sequence
from typing import Any

from litestar import Litestar, Request, Response
from litestar.exceptions import MethodNotAllowedException, NotFoundException

from services.api.http import errors
from services.api.http.acts import ACTS, Acts
from services.api.http.documentation import DocumentationResource
from services.api.http.guards import Bodies, Guarded, Limited, guard_rules, route_exactly, without_slash
from services.api.http.identity import Directory, IdentifyCaller, shown_by
from services.api.http.observed import Observed
from services.api.http.pages.frame import Doors, PageFrame
from services.api.http.pages.routes import PageSet
from services.api.http.pages.sessions import HTTPS, Visitors
from services.api.http.pages.visits import INNER, SHARED_READS, shared_reads
from services.api.http.paging import PUBLIC_PATH, public_path
from services.api.http.rights import basic_paths, protected_paths
from services.api.http.routes import LENIENT_JOBS, OF_MARATHON, Resource
from shared.runtime.settings import ApiSettings

Application = Litestar
"""The ASGI application that `create` makes."""


def create(
    resources: Sequence[Resource],
    pages: Sequence[PageSet],
    directory: Directory,
    visitors: Visitors,
    acts: Acts,
    settings: ApiSettings,
) -> Application:
    handlers = [handler for resource in resources for handler in resource.handlers()]
    frame = PageFrame(pages, visitors, demands_reasons=acts.demands_reasons)
    app = Litestar(
        route_handlers=[
            *handlers,
            *DocumentationResource(handlers, public_url=settings.public_url, has_dashboard=bool(pages)).handlers(),
            *frame.handlers(),
            *Doors(frame, visitors).handlers(),
        ],
        exception_handlers={
            MethodNotAllowedException: _refuse_method,
            NotFoundException: frame.refuse_path,
            Exception: errors.refuse,
        },
        request_max_body_size=settings.max_body_bytes,
        openapi_config=None,
        logging_config=None,
    )
    route_exactly(app)
    app.state[ACTS] = acts
    app.state[LENIENT_JOBS] = settings.lenient_jobs
    app.state[PUBLIC_PATH] = public_path(settings.public_url)
    app.state[HTTPS] = settings.public_url.startswith("https:")
    limited = Limited(app.asgi_handler, settings)
    app.state[INNER] = limited
    app.state[SHARED_READS] = shared_reads()
    bodies = Bodies(limited, settings.max_bodies_bytes)
    identified = IdentifyCaller(bodies, directory, protected_paths(handlers), basic_paths(handlers))
    app.asgi_handler = Observed(Guarded(identified, guard_rules(settings)))
    return app


def _refuse_method(request: Request[Any, Any, Any], error: MethodNotAllowedException) -> Response[bytes]:
    """Marathon's and Routemaster's published routes answer 404 to an unknown method."""
    is_published = bool(shown_by(request) or OF_MARATHON.fullmatch(without_slash(request.scope["path"])))
    return errors.refuse(request, NotFoundException() if is_published else error)
