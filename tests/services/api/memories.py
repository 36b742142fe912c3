"""A cache of what Litestar and Jinja compute for each application, as hundreds of tests make one of their own.

Litestar reads the signatures of 500 handlers, and Jinja compiles the templates. The results depend on a function or on
a template's text alone, so all applications of one session share them.
"""

from collections.abc import Callable, Hashable
from functools import cache, wraps
from inspect import unwrap
from typing import Any

from jinja2 import Environment
from litestar import Litestar
from litestar._asgi.asgi_router import ASGIRouter
from litestar._kwargs import KwargsModel
from litestar._signature.model import SignatureModel
from litestar.router import Router
from litestar.routes import HTTPRoute
from litestar.types import ASGIApp
from litestar.types.internal_types import RouteHandlerMapItem
from litestar.utils.signature import ParsedSignature

_kept: dict[Hashable, Any] = {}
_whole_map: Any = vars(Router)["route_handler_method_map"].fget


@cache
def keep() -> None:
    """Cache these results from now on, in this process."""
    _remember(ParsedSignature, "from_fn", lambda fn, _: _written(fn))
    _remember(SignatureModel, "create", lambda *, fn, parsed_signature, **_: (_written(fn), id(parsed_signature)))
    _remember(KwargsModel, "create_for_signature_model", _shape)
    _remember(Environment, "compile", lambda _, source, name, filename: (source, name, filename))
    Router.route_handler_method_map = property(_Routes)  # type: ignore[assignment, method-assign]
    _find_ways_once()


def _find_ways_once() -> None:
    """Litestar goes through all routes after each one that is added; once, after the last, is enough."""
    construct, create = ASGIRouter.construct_routing_trie, Litestar._create_asgi_handler

    def create_at_last(app: Litestar) -> ASGIApp:
        construct(app.asgi_router)
        return create(app)

    ASGIRouter.construct_routing_trie = lambda _: None  # type: ignore[assignment, method-assign]
    Litestar._create_asgi_handler = create_at_last  # type: ignore[assignment, method-assign]


def _remember(owner: type, name: str, key_of: Callable[..., Hashable]) -> None:
    found = vars(owner)[name]
    function = getattr(owner, name)

    @wraps(function)
    def remembered(*args: Any, **kwargs: Any) -> Any:
        key = (owner, key_of(*args, **kwargs))
        if key not in _kept:
            _kept[key] = function(*args, **kwargs)
        return _kept[key]

    setattr(owner, name, staticmethod(remembered) if isinstance(found, classmethod) else remembered)


def _written(function: Any) -> Hashable:
    """The code of a function. Methods of different objects share it, and so do wrappers of the same function."""
    written: Hashable = getattr(unwrap(function), "__code__", function)
    return written


def _shape(*, signature_model: type, path_parameters: set[str], **_: Any) -> Hashable:
    return (signature_model, frozenset(path_parameters))


class _Routes:
    """A router's map from paths to handlers. Litestar computes the whole map for each handler, to look up one path."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def get(self, path: str, _: Any) -> RouteHandlerMapItem:
        at_path = (route for route in self._router.routes if route.path == path and isinstance(route, HTTPRoute))
        handlers = [handler for route in at_path for handler in route.route_handlers]
        return {method: handler for handler in handlers for method in handler.http_methods}

    def items(self) -> Any:
        return _whole_map(self._router).items()
