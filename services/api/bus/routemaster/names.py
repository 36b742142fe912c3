"""Names of namespaces in the published lists: the caller's own token, or a name, never another's token or address."""

from collections.abc import Iterable
from typing import Any

from litestar import Request

from services.api.bus.owners import show_owner
from services.api.http.identity import caller_of, shown_by
from shared.domain.accounts.callers import token_namespace, user_namespace
from shared.store import Store

_TOKEN, _USER = token_namespace(""), user_namespace("")


class OwnerNames:
    """Looks up what namespaces are called."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def look_up(self, request: Request[Any, Any, Any], namespaces: Iterable[str]) -> dict[str, str]:
        """The name of each of these namespaces in an answer to this request."""
        caller, wanted = caller_of(request), {*namespaces}
        ids = [namespace.removeprefix(_TOKEN) for namespace in wanted if namespace.startswith(_TOKEN)]
        names = await self._store.tokens.names(ids)
        called = {namespace: _call(show_owner(namespace, caller), names) for namespace in wanted}
        # What several tokens share, or nobody has any more, is called by itself.
        return called | {caller.namespace: shown_by(request)}


def _call(namespace: str, names: dict[str, str]) -> str:
    bare = namespace.removeprefix(_TOKEN).removeprefix(_USER)
    return names.get(bare, bare) if namespace.startswith(_TOKEN) else bare
