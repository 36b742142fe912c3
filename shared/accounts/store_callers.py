"""Callers: users by their e-mail address, service tokens by the digest of their secret, browser sessions by the digest
of their cookie, and revocations, until nothing of a removed caller can be scheduled any more.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from pymongo import ASCENDING, ReturnDocument
from pymongo.asynchronous.database import AsyncDatabase

from shared.accounts.rules.apps import Role, fold_email
from shared.accounts.rules.callers import IDLE, Revocation, Token, TokenScope, User, WebSession, token_namespace
from shared.core.errors import Conflict
from shared.drivers.mongo.documents import (
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


_user_codec = _UserCodec(User, json=("roles",))
_BATCH = 32  # a user with rights over 27,000 apps has a megabyte


def _email_conflict(known: str = "another user") -> Conflict:
    return Conflict(f"{known} has this email, whatever its case (uix_users_email)", field="email")


class Users(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._users = database["users"]

    async def setup(self) -> None:
        await self._users.create_index([("email", ASCENDING)], unique=True)

    async def add(self, user: User) -> None:
        try:
            with translate_errors(duplicate=_email_conflict):
                await self._users.insert_one(_user_codec.document(user))
        except Conflict:
            known = (await self.with_emails([user.email])).get(fold_email(user.email))
            raise _email_conflict(f"the user {known.email}" if known else "another user") from None

    async def get(self, user_id: str) -> User | None:
        return _user_codec.maybe(await self._users.find_one({"_id": user_id}))

    async def add_new(self, users: Sequence[User]) -> set[int]:
        """Insert the users whose ids and addresses are free; returns the positions of the others."""
        return await insert_new(self._users, [_user_codec.document(user) for user in users])

    async def with_ids(self, user_ids: Sequence[str]) -> dict[str, User]:
        return await with_ids(self._users, _user_codec, user_ids)

    async def replace(self, old: User, new: User) -> bool:
        return await replace_unchanged(
            self._users, _user_codec.document(old), _user_codec.document(new), duplicate=_email_conflict
        )

    async def with_emails(self, emails: Sequence[str]) -> dict[str, User]:
        """The users with these addresses in any case, by folded address. One query."""
        found = await self._users.find({"email": {"$in": [*map(fold_email, emails)]}}).to_list()
        return {document["email"]: _user_codec.value(document) for document in found}

    async def page(self, *, after: str = "", limit: int) -> Page[User]:
        query = {"_id": {"$gt": after}}
        return await read_page(self._users, query, _user_codec.value, order=("_id",), limit=limit, batch=_BATCH)

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
        return _user_codec.maybe(
            await self._users.find_one_and_update({"_id": user_id}, change, return_document=ReturnDocument.AFTER)
        )

    async def remove(self, user_id: str) -> bool:
        return (await self._users.delete_one({"_id": user_id})).deleted_count == 1


_token_codec = Codec(Token, json=("roles",))


class Tokens(Aggregate):
    """The `tokens` collection. It never holds a secret."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._tokens = database["tokens"]

    async def setup(self) -> None:
        await self._tokens.create_index([("digest", ASCENDING)], unique=True)
        await self._tokens.create_index([("previous_digest", ASCENDING)])
        await self._tokens.create_index([("namespace", ASCENDING)])
        await self._tokens.create_index([("scope", ASCENDING), ("_id", ASCENDING)])

    async def add(self, token: Token) -> None:
        """Raise `Conflict` if the secret exists already."""
        with translate_errors(duplicate=lambda: Conflict("this token exists already", field="token")):
            await self._tokens.insert_one(_token_codec.document(token))

    async def get(self, token_id: str) -> Token | None:
        return _token_codec.maybe(await self._tokens.find_one({"_id": token_id}))

    async def with_digests(self, digests: Sequence[str]) -> dict[str, Token]:
        """The tokens whose present or previous secrets have these digests, by digest. One query, and another for the
        digests that it does not find."""
        found = await self._find("digest", digests)
        left = [digest for digest in digests if digest not in found]
        return found | (await self._find("previous_digest", left) if left else {})

    async def find_of_namespaces(self, namespaces: Collection[str]) -> list[Token]:
        # A token whose namespace follows from its id does not store it.
        ids = [namespace.removeprefix(token_namespace("")) for namespace in namespaces]
        owners = {"_id": {"$in": ids}, "namespace": ""}
        found = await self._tokens.find({"$or": [{"namespace": {"$in": list(namespaces)}}, owners]}).to_list()
        return [_token_codec.value(document) for document in found]

    async def is_shared(self, token: Token) -> bool:
        own = token_namespace("")
        query = {"_id": {"$ne": token.id}, "namespace": token.owns}
        if await self._tokens.find_one(query, {"_id": 1}) is not None:
            return True
        # A token whose namespace follows from its id does not store it.
        owner = {"_id": token.owns.removeprefix(own), "namespace": ""}
        found = await self._tokens.find_one(owner, {"_id": 1})
        return found is not None and found["_id"] != token.id

    async def rotate(
        self, token: Token, digest: str, *, previous_until: datetime, expires_at: datetime | None
    ) -> Token | None:
        """Give the token another secret, unless another process did since; the previous one is valid until
        `previous_until`."""
        change = {
            "digest": digest,
            "previous_digest": token.digest,
            "previous_until": previous_until,
            "expires_at": expires_at,
        }
        query = {"_id": token.id, "digest": token.digest}
        found = await self._tokens.find_one_and_update(query, {"$set": change}, return_document=True)
        return _token_codec.maybe(found)

    async def note_use(self, token: Token, at: datetime) -> None:
        """Record the use, unless another process has recorded one since the token was read."""
        query = {"_id": token.id, "last_used_at": token.last_used_at}
        await self._tokens.update_one(query, {"$set": {"last_used_at": at}})

    async def page(self, *, after: str = "", limit: int) -> Page[Token]:
        query = {"_id": {"$gt": after}}
        return await read_page(self._tokens, query, _token_codec.value, order=("_id",), limit=limit, batch=_BATCH)

    async def with_scope(self, scope: TokenScope, *, after: str = "", limit: int) -> Page[Token]:
        """The tokens of this scope whose ids follow `after`, the oldest first."""
        query = {"scope": scope.value, "_id": {"$gt": after}}
        return await read_page(self._tokens, query, _token_codec.value, order=("_id",), limit=limit, batch=_BATCH)

    async def names(self, token_ids: Sequence[str]) -> dict[str, str]:
        found = await self._tokens.find({"_id": {"$in": list(token_ids)}}, {"name": 1}).to_list()
        return {document["_id"]: document["name"] for document in found}

    async def remove(self, token_id: str) -> bool:
        return (await self._tokens.delete_one({"_id": token_id})).deleted_count == 1

    async def _find(self, field: str, digests: Sequence[str]) -> dict[str, Token]:
        found = await self._tokens.find({field: {"$in": list(digests)}}).to_list()
        return {document[field]: _token_codec.value(document) for document in found}


session_codec = Codec(WebSession)


class WebSessions(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._sessions = database["sessions"]

    async def setup(self) -> None:
        await self._sessions.create_index([("namespace", ASCENDING), ("began_at", ASCENDING)])
        await self._sessions.create_index([("seen_at", ASCENDING)])
        await self._sessions.create_index([("ends_at", ASCENDING)])

    async def add(self, session: WebSession) -> None:
        await self._sessions.insert_one(session_codec.document(session))

    async def with_ids(self, session_ids: Sequence[str]) -> dict[str, WebSession]:
        return await with_ids(self._sessions, session_codec, session_ids)

    async def take_link(self, session_id: str) -> WebSession | None:
        """Take the link with this id, so that it works once; `None` if there is none."""
        return session_codec.maybe(await self._sessions.find_one_and_delete({"_id": session_id, "is_link": True}))

    async def note_sight(self, session: WebSession, at: datetime) -> None:
        await self._sessions.update_one({"_id": session.id}, {"$max": {"seen_at": at}})

    async def find_of(self, namespace: str, *, limit: int) -> Sequence[WebSession]:
        found = (
            self._sessions.find({"namespace": namespace, "is_link": {"$ne": True}}).sort("began_at", -1).limit(limit)
        )
        return [session async for session in session_codec.values(found)]

    async def remove(self, session_id: str, namespace: str) -> bool:
        found = await self._sessions.delete_one({"_id": session_id, "namespace": namespace})
        return found.deleted_count == 1

    async def remove_over(self, now: datetime) -> int:
        ended = await self._sessions.delete_many({"ends_at": {"$lte": now}})
        idle = await self._sessions.delete_many({"seen_at": {"$lte": now - IDLE}})
        return ended.deleted_count + idle.deleted_count


_revocation_codec = Codec(Revocation)


class Revocations(Aggregate):
    """The `revocations` collection: few documents, found by `_id` or read all at once."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._revocations = database["revocations"]

    async def begin(self, revocation: Revocation) -> None:
        """Store the revocation, in place of an earlier one with its id."""
        await self._revocations.replace_one({"_id": revocation.id}, _revocation_codec.document(revocation), upsert=True)

    async def get(self, id: str) -> Revocation | None:
        return _revocation_codec.maybe(await self._revocations.find_one({"_id": id}))

    async def all(self) -> list[Revocation]:
        return [revocation async for revocation in _revocation_codec.values(self._revocations.find({}))]

    async def mark_paused(self, revocation: Revocation) -> None:
        await self._revocations.update_one(_same(revocation), {"$set": {"paused": True}})

    async def spare(self, namespace: str, schedule_id: str, *, token_id: str = "") -> None:
        """Exempt a schedule from the revocations of the namespace, except that of the token `token_id`: a request with
        that token may have been accepted before."""
        # Revocations are few, and each lasts about an hour.
        query: Document = {"$or": [{"_id": namespace}, {"namespace": namespace}], "subject_id": {"$ne": token_id}}
        await self._revocations.update_many(query, {"$addToSet": {"spared": schedule_id}})

    async def forget(self, revocation: Revocation) -> None:
        await self._revocations.delete_one(_same(revocation))


def _same(revocation: Revocation) -> Document:
    return {"_id": revocation.id, "at": revocation.at}
