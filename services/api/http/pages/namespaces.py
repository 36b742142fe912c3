"""Whose things a page shows: the namespace in its address, and those that its reader may choose from."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from services.api.http.pages.inner import ApiAnswer
from services.api.http.pages.visits import Visit

EVERY = "*"
_TOKENS = 200
_KEPT_SECONDS = 30
_CHOICES = 20
"""How many namespaces there are to choose from. Others are typed."""


class NamespaceChoice(Struct, frozen=True):
    """The namespaces that a reader can choose: one page of them, the `next` cursor, and the `names` of their tokens
    that this reader may see. `all` has counts only if the page shows them."""

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


async def read_choice(visit: Visit, chosen: str, *, cursor: str = "", counts: bool = False) -> NamespaceChoice:
    """Read the choice; with `counts`, also the number of things in each. Raises `ApiProblem`."""
    listed, names = await visit.read_all(_read_namespaces(visit, cursor, counts=counts), read_names(visit))
    found: ApiAnswer = listed
    return NamespaceChoice(
        chosen=chosen,
        own=visit.caller.namespace,
        every=visit.may("viewer"),
        all=found.value,
        next=found.next,
        names=names,
    )


async def _read_namespaces(visit: Visit, cursor: str, *, counts: bool) -> ApiAnswer:
    """A page of namespaces. No list of them is stored, so a refresh does not search again."""
    whose = EVERY if visit.may("viewer") else visit.caller.namespace
    key = ("/namespaces", whose, *sorted(visit.caller.namespaces_with_role), cursor, counts)
    found: ApiAnswer = await visit.read_shared(
        key,
        lambda: visit.read_list("/namespaces", cursor=cursor, limit=_CHOICES, counts=counts),
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
