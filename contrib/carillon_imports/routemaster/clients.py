"""Importing tokens, and finding the owners of topics and subscriptions by them."""

import secrets
from collections.abc import Iterable, Sequence

from msgspec import Struct

from carillon_imports.kinds import ImportedKind, Reasons, taken_meanwhile
from carillon_imports.routemaster.source import TokenRow
from shared.domain.accounts.bus_tokens import check_bus_secret
from shared.domain.accounts.callers import Token, TokenScope, check_token_name, token_namespace
from shared.domain.errors import Conflict
from shared.domain.ids import time_ordered_id
from shared.runtime.clock import Clock
from shared.store import Store

MADE_BY = "carillon import"


class ImportedToken(Struct, frozen=True):
    """A token. `id` is the digest of its secret; its `namespace` owns its topics and its subscription."""

    id: str
    name: str
    namespace: str


class Clients:
    """The clients that exist here, or would after a dry run: things of other clients cannot be imported."""

    def __init__(self) -> None:
        self._tokens: dict[str, ImportedToken] = {}

    def add(self, token: ImportedToken) -> None:
        self._tokens.setdefault(token.id, token)

    def namespace_of(self, token: str) -> str:
        """The namespace of the token with this digest. Raises `Conflict` if it does not exist here."""
        if (found := self._tokens.get(token)) is None:
            raise Conflict("its token is gone there, was not brought, or was deleted here")
        return found.namespace

    def find_namespaces(self, tokens: Iterable[str]) -> dict[str, str]:
        return {each: self._tokens[each].namespace for each in tokens if each in self._tokens}

    def name_of(self, token: str) -> str:
        found = self._tokens.get(token)
        return "(nobody's)" if found is None else found.name


class TokensKind(ImportedKind[TokenRow, ImportedToken]):
    """Imports tokens."""

    name = "tokens"
    left_out = ("namespace",)

    def __init__(self, store: Store, clients: Clients, clock: Clock) -> None:
        self._tokens = store.tokens
        self._clients = clients
        self._clock = clock

    def label(self, row: TokenRow) -> str:
        return row.name

    def shown_id(self, row: TokenRow) -> str:
        """Its place in the list: a report must contain neither a secret nor the digest of a possible word."""
        return f"#{row.place}"

    def read(self, row: TokenRow) -> ImportedToken:
        check_bus_secret(row.secret, field="token")
        check_token_name(row.name)
        fresh = time_ordered_id(self._clock.now_ns(), secrets.randbits(62))
        return ImportedToken(row.id, row.name, token_namespace(fresh))

    async def here(self, ids: Sequence[str]) -> dict[str, ImportedToken]:
        found = await self._tokens.with_digests(ids)
        return {id: ImportedToken(id, token.name, token.owns) for id, token in found.items()}

    async def add(self, new: Sequence[ImportedToken]) -> Reasons:
        taken = []
        for token in new:
            try:
                await self._tokens.add(self._make(token))
            except Conflict:
                taken.append(token.id)
        return taken_meanwhile(taken)

    async def replace(self, here: ImportedToken, there: ImportedToken) -> bool:
        raise Conflict(f"has another name there: a token keeps the one that it was made with, here {here.name}")

    def remember(self, present: Iterable[ImportedToken]) -> None:
        for token in present:
            self._clients.add(token)

    def _make(self, token: ImportedToken) -> Token:
        return Token(
            id=token.namespace.removeprefix(token_namespace("")),
            name=token.name,
            digest=token.id,
            scope=TokenScope.BUS,
            created_by=MADE_BY,
            created_at=self._clock.now_ns(),
        )
