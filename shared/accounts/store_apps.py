"""Apps and the signing secrets of namespaces: one document each.

An app's name is part of the names of its push tables and topics, where case makes no difference, so no two apps
share a name. A unique index on `name_key`, the name in lower case, ensures that. A signing secret is random bytes,
from which the secrets of its namespace are made.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pymongo import ASCENDING, ReturnDocument
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import DuplicateKeyError

from shared.accounts.rules.apps import App, name_key
from shared.accounts.rules.secrets import NamespaceSecrets
from shared.core.errors import Conflict
from shared.drivers.mongo.documents import (
    Aggregate,
    Codec,
    Document,
    Page,
    insert_new,
    read_page,
    translate_errors,
    with_ids,
)

_codec = Codec(App)
_BATCH = 1_000  # of less than a kilobyte each


def _name_taken(name: str | None) -> Conflict:
    reason = "another app has this name: case makes no difference, since both would share push tables"
    return Conflict(reason, field="name", value=name)


@contextmanager
def _unique(name: str | None = None) -> Iterator[None]:
    try:
        with translate_errors():
            yield
    except DuplicateKeyError as error:
        # The value after the name of the index is a user's text.
        index = str(error).partition(" dup key")[0]
        bundle_id_taken = Conflict("another app has this bundleId (uix_apps_bundle_id)", field="bundleId")
        raise (_name_taken(name) if "name_key" in index else bundle_id_taken) from error


class Apps(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._apps = database["apps"]

    async def setup(self) -> None:
        await self._apps.create_index([("bundle_id", ASCENDING)], unique=True)
        await self._apps.create_index([("name_key", ASCENDING)], unique=True, sparse=True)

    async def add(self, app: App) -> None:
        with _unique(app.name):
            await self._apps.insert_one(_document(app))

    async def get(self, app_id: str) -> App | None:
        return _codec.maybe(await self._apps.find_one({"_id": app_id}))

    async def add_new(self, apps: Sequence[App]) -> set[int]:
        """Insert the apps whose ids, bundle ids and names are free; returns the positions of the others."""
        return await insert_new(self._apps, [_document(app) for app in apps])

    async def with_ids(self, app_ids: Sequence[str]) -> dict[str, App]:
        return await with_ids(self._apps, _codec, app_ids)

    async def ids_of(self, bundle_ids: Sequence[str]) -> dict[str, str]:
        found = await self._apps.find({"bundle_id": {"$in": list(bundle_ids)}}, {"bundle_id": 1}).to_list()
        return {document["bundle_id"]: document["_id"] for document in found}

    async def find_holders(self, names: Iterable[str]) -> dict[str, str]:
        """The ids of the apps that have these names in any case, by lower-case name."""
        wanted = {"name_key": {"$in": [*map(name_key, names)]}}
        found = await self._apps.find(wanted, {"name_key": 1}).to_list()
        return {document["name_key"]: document["_id"] for document in found}

    async def replace(self, old: App, new: App) -> bool:
        """Replace an app; `False` if it has changed since. Raises `Conflict` if another app has this bundle id or this
        name."""
        unchanged = {"_id": old.id, "name": old.name, "updated_at": old.updated_at}
        change = _document(new)
        del change["_id"]
        return await self._change(unchanged, change, new.name) is not None

    async def page(self, *, after: str = "", limit: int) -> Page[App]:
        query = {"_id": {"$gt": after}}
        return await read_page(self._apps, query, _codec.value, order=("_id",), limit=limit, batch=_BATCH)

    async def update(self, app_id: str, *, name: str | None, bundle_id: str, at: int) -> App | None:
        """Change the bundle id and, unless it is `None`, the name; `None` if there is no such app. Raises `Conflict` if
        another app has this bundle id or this name."""
        change: Document = {"bundle_id": bundle_id, "updated_at": at}
        if name is not None:
            change |= {"name": name, "name_key": name_key(name)}
        return await self._change({"_id": app_id}, change, name)

    async def _change(self, query: Document, change: Document, name: str | None) -> App | None:
        with _unique(name):
            found: Any = await self._apps.find_one_and_update(
                query, {"$set": change}, return_document=ReturnDocument.AFTER
            )
        return _codec.maybe(found)

    async def begin_removal(self, app_id: str) -> bool:
        return (await self._apps.update_one({"_id": app_id}, {"$set": {"going": True}})).matched_count == 1

    async def confirm_removal(self, app_id: str) -> None:
        """Record that all work of the app has ended, so that its deletion can be completed."""
        await self._apps.update_one({"_id": app_id, "going": True}, {"$set": {"confirmed": True}})

    async def find_confirmed(self) -> list[str]:
        found = await self._apps.find({"confirmed": True}, {"_id": 1}).to_list()
        return [document["_id"] for document in found]

    async def remove(self, app_id: str) -> bool:
        return (await self._apps.delete_one({"_id": app_id})).deleted_count == 1


def _document(app: App) -> Document:
    return _codec.document(app) | {"name_key": name_key(app.name)}


_secret_codec = Codec(NamespaceSecrets)


class SigningSecretStore(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._secrets = database["signing_secrets"]

    async def get(self, namespace: str) -> NamespaceSecrets | None:
        return _secret_codec.maybe(await self._secrets.find_one({"_id": namespace}))

    async def replace(self, old: NamespaceSecrets | None, new: NamespaceSecrets) -> bool:
        document = _secret_codec.document(new)
        if old is None:
            return not await insert_new(self._secrets, [document])
        unchanged = {"_id": old.id, "versions": _secret_codec.document(old)["versions"]}
        return (await self._secrets.replace_one(unchanged, document)).matched_count == 1
