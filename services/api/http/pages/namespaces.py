"""The app or the namespace that a page is about: the one in its address, and those that its reader may choose."""

from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

from msgspec import Struct

from services.api.http.pages.visits import ApiAnswer, ApiProblem, Visit

MOST_APPS = 500
"""From how many apps one can be chosen."""
_KEPT_SECONDS = 30
ShownApp = Mapping[str, Any]


async def read_apps(visit: Visit, role: str = "viewer") -> list[ShownApp]:
    # The route lists all apps to everybody, so one reading serves all.
    read = partial(visit.read, "/apps", limit=MOST_APPS)
    found = await visit.read_shared(("/apps",), read, seconds=_KEPT_SECONDS)
    return sorted((app for app in found if visit.may(role, app=app["id"])), key=lambda app: app["name"].lower())


async def choose_app(visit: Visit, apps: Sequence[ShownApp]) -> ShownApp | None:
    """The app that the address names, even if it is not in `apps`; without a name the first, or `None`. Raises
    `ApiProblem`."""
    wanted = visit.query("app")
    if not wanted:
        return next(iter(apps), None)
    listed = next((app for app in apps if app["id"] == wanted), None)
    return listed or await require_app(visit, wanted, "viewer")


async def require_app(visit: Visit, app_id: str, role: str = "operator") -> ShownApp:
    app: ShownApp = await visit.read("/apps/{}", app_id)
    if not visit.may(role, app=app["id"]):
        raise ApiProblem(HTTPStatus.FORBIDDEN, f"this needs the role {role} over the app {app['name']}")
    return app


EVERY = "*"
_TOKENS = 200
_CHOICES = 20
"""How many namespaces there are to choose from. Others are typed."""


class NamespaceChoice(Struct, frozen=True):
    """The namespaces that a reader can choose: one page of them, the `next` cursor, and the `names` of their tokens
    that this reader may see."""

    chosen: str
    own: str
    every: bool
    all: list[dict[str, Any]]
    next: str
    names: dict[str, str]

    def tell(self, namespace: str) -> str:
        return tell_namespace(namespace, self.names)


def tell_namespace(namespace: str, names: Mapping[str, str]) -> str:
    """The namespace by the name of its tokens or its person, if known."""
    return "all namespaces" if namespace == EVERY else names.get(namespace) or namespace.removeprefix("user:")


def chosen_namespace(visit: Visit) -> str:
    """The namespace in the page's address. Without one: all, for a reader with a role over everything, else the
    reader's own."""
    return visit.query("namespace") or (EVERY if visit.may("viewer") else visit.caller.namespace)


async def read_choice(visit: Visit, chosen: str) -> NamespaceChoice:
    listed, names = await visit.read_all(_read_namespaces(visit), read_names(visit))
    found: ApiAnswer = listed
    return NamespaceChoice(
        chosen=chosen,
        own=visit.caller.namespace,
        every=visit.may("viewer"),
        all=found.value,
        next=found.next,
        names=names,
    )


async def _read_namespaces(visit: Visit) -> ApiAnswer:
    """A page of namespaces. No list of them is stored, so a refresh does not search again."""
    whose = EVERY if visit.may("viewer") else visit.caller.namespace
    key = ("/namespaces", whose, *sorted(visit.caller.namespaces_with_role))
    found: ApiAnswer = await visit.read_shared(
        key,
        lambda: visit.read_list("/namespaces", cursor="", limit=_CHOICES, counts=False),
        seconds=_KEPT_SECONDS,
    )
    return found


async def read_names(visit: Visit) -> dict[str, str]:
    """The names of tokens by the namespaces that only they use. Only admins may know them."""
    if not visit.caller.is_admin:
        return {}
    names: dict[str, str] = {}
    read = partial(visit.read, "/tokens", limit=_TOKENS)
    for token in await visit.read_shared(("/tokens",), read, seconds=_KEPT_SECONDS):
        known = names.get(token["namespace"])
        names[token["namespace"]] = token["name"] if known is None else f"{known}, {token['name']}"
    return names
