"""Users: one document each, found by their e-mail address with every request."""

from collections.abc import Mapping, Sequence
from typing import Any

from pymongo import ASCENDING, ReturnDocument
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.accounts.callers import User
from shared.domain.accounts.roles import Role, fold_email
from shared.domain.errors import Conflict
from shared.store.documents import (
    Aggregate,
    Codec,
    Document,
    Page,
    insert_new,
    json_text,
    read_page,
    replace_unchanged,
    translate_errors,
    with_ids,
)


class _UserCodec(Codec[User]):
    """`email` is stored folded, so that its unique index knows an address in any spelling; `spelling` is shown."""

    def document(self, value: User) -> Document:
        return super().document(value) | {"email": fold_email(value.email), "spelling": value.email}

    def value(self, document: Mapping[str, Any]) -> User:
        fields = dict(document)
        return super().value(fields | {"email": fields.pop("spelling", document["email"])})


_codec = _UserCodec(User, json=("roles",))
_BATCH = 32  # a user with rights over 27,000 apps has a megabyte


def _email_conflict(known: str = "another user") -> Conflict:
    return Conflict(f"{known} has this email, whatever its case (uix_users_email)", field="email")


class Users(Aggregate):
    """The `users` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._users = database["users"]

    async def setup(self) -> None:
        await self._users.create_index([("email", ASCENDING)], unique=True)

    async def add(self, user: User) -> None:
        """Raise `Conflict` if another user has this address."""
        try:
            with translate_errors(duplicate=_email_conflict):
                await self._users.insert_one(_codec.document(user))
        except Conflict:
            known = (await self.with_emails([user.email])).get(fold_email(user.email))
            raise _email_conflict(f"the user {known.email}" if known else "another user") from None

    async def get(self, user_id: str) -> User | None:
        return _codec.maybe(await self._users.find_one({"_id": user_id}))

    async def add_new(self, users: Sequence[User]) -> set[int]:
        """Insert the users whose ids and addresses are free; returns the positions of the others."""
        return await insert_new(self._users, [_codec.document(user) for user in users])

    async def with_ids(self, user_ids: Sequence[str]) -> dict[str, User]:
        return await with_ids(self._users, _codec, user_ids)

    async def replace(self, old: User, new: User) -> bool:
        """Replace a user; `False` if it has changed since. Raises `Conflict` if another user has this address."""
        return await replace_unchanged(
            self._users, _codec.document(old), _codec.document(new), duplicate=_email_conflict
        )

    async def with_emails(self, emails: Sequence[str]) -> dict[str, User]:
        """The users with these addresses in any case, by folded address. One query."""
        found = await self._users.find({"email": {"$in": [*map(fold_email, emails)]}}).to_list()
        return {document["email"]: _codec.value(document) for document in found}

    async def page(self, *, after: str = "", limit: int) -> Page[User]:
        query = {"_id": {"$gt": after}}
        return await read_page(self._users, query, _codec.value, order=("_id",), limit=limit, batch=_BATCH)

    async def update(
        self,
        user_id: str,
        *,
        is_admin: bool,
        allowed_apps: Sequence[str] | None,
        roles: Mapping[str, Role],
        at: int,
    ) -> User | None:
        allowed = None if allowed_apps is None else list(allowed_apps)
        fields = {"is_admin": is_admin, "allowed_apps": allowed, "roles": json_text(roles), "updated_at": at}
        change = {"$set": fields}
        return _codec.maybe(
            await self._users.find_one_and_update({"_id": user_id}, change, return_document=ReturnDocument.AFTER)
        )

    async def remove(self, user_id: str) -> bool:
        return (await self._users.delete_one({"_id": user_id})).deleted_count == 1
