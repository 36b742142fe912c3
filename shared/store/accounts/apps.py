"""Apps: one document each, by an id that sorts by age.

A name makes the names of push tables and topics, where case makes no difference, so it belongs to one app. A unique
index on `name_key`, the name in lower case, sees to that. Apps of former versions have no such field: `setup` gives it
to them. If several share a name already, the oldest gets it; the others keep working without. Until `setup` has run,
and while a process of a former version is at work, a look at the names themselves refuses what it can.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pymongo import ASCENDING, ReturnDocument
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import DuplicateKeyError

from shared.domain.accounts.apps import App, name_key
from shared.domain.errors import Conflict
from shared.store.documents import Codec, Document, Page, insert_new, read_page, translate_errors, with_ids

_codec = Codec(App)
_BATCH = 1_000  # of less than a kilobyte each


def _bundle_id_taken() -> Conflict:
    return Conflict("another app has this bundleId (uix_apps_bundle_id)", field="bundleId")


def _name_taken(name: str | None = None) -> Conflict:
    reason = "another app has this name: case makes no difference, since both would share push tables"
    return Conflict(reason, field="name", value=name)


@contextmanager
def _unique() -> Iterator[None]:
    """Raise `Conflict` where a bundle id or a name is another app's; otherwise as `translate_errors`."""
    try:
        with translate_errors():
            yield
    except DuplicateKeyError as error:
        # Behind the name of the index there comes the value, which somebody chose.
        index = str(error).partition(" dup key")[0]
        raise (_name_taken() if "name_key" in index else _bundle_id_taken()) from error


class Apps:
    """The `apps` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._apps = database["apps"]

    async def setup(self) -> None:
        """Make the indexes."""
        await self._apps.create_index([("bundle_id", ASCENDING)], unique=True)
        await self._apps.create_index([("name_key", ASCENDING)], unique=True, sparse=True)
        await self._set_name_keys()

    async def _set_name_keys(self) -> None:
        """Give each name to the oldest app that has it."""
        apps = await self._apps.find({}, {"name": 1, "name_key": 1, "created_at": 1}).to_list()
        for app in apps:
            if app.get("name_key", name_key(app["name"])) != name_key(app["name"]):
                # A process of the former version has renamed it since.
                await self._apps.update_one({"_id": app["_id"], "name": app["name"]}, {"$unset": {"name_key": ""}})
        for app in sorted(apps, key=_age):
            key = name_key(app["name"])
            if app.get("name_key") == key:
                continue
            try:
                await self._apps.update_one({"_id": app["_id"], "name": app["name"]}, {"$set": {"name_key": key}})
            except DuplicateKeyError:
                continue

    async def find_clashing(self) -> list[list[App]]:
        """The apps that share a name, but for its case; those of one name together, the oldest first."""
        alike: dict[str, list[App]] = {}
        async for app in _codec.values(self._apps.find({})):
            alike.setdefault(name_key(app.name), []).append(app)
        return [sorted(apps, key=lambda app: (app.created_at, app.id)) for apps in alike.values() if len(apps) > 1]

    async def add(self, app: App) -> None:
        """Insert an app.

        Raises:
            Conflict: another app has this bundle id or this name.
        """
        await self._check_name_is_free(app.name, app.id)
        with _unique():
            await self._apps.insert_one(_document(app))

    async def get(self, app_id: str) -> App | None:
        """The app with this id, if there is one."""
        with translate_errors():
            return _codec.maybe(await self._apps.find_one({"_id": app_id}))

    async def add_new(self, apps: Sequence[App]) -> set[int]:
        """Insert those whose ids, bundle ids and names are free; returns the positions of the others."""
        return await insert_new(self._apps, [_document(app) for app in apps])

    async def with_ids(self, app_ids: Sequence[str]) -> dict[str, App]:
        """Those of these apps that there are, by id."""
        return await with_ids(self._apps, _codec, app_ids)

    async def ids_of(self, bundle_ids: Sequence[str]) -> dict[str, str]:
        """The ids of the apps with these bundle ids, by them."""
        with translate_errors():
            found = await self._apps.find({"bundle_id": {"$in": list(bundle_ids)}}, {"bundle_id": 1}).to_list()
        return {document["bundle_id"]: document["_id"] for document in found}

    async def find_holders(self, names: Iterable[str]) -> dict[str, str]:
        """The ids of the apps that have these names, whatever their case, by the names in lower case."""
        wanted = set(map(name_key, names))
        with translate_errors():
            # A pattern would have the server look at all of them too, and has a limit that servers set differently.
            found = await self._apps.find({}, {"name": 1}).to_list()
        keys = {document["_id"]: name_key(document["name"]) for document in found}
        return {key: id for id, key in keys.items() if key in wanted}

    async def replace(self, old: App, new: App) -> bool:
        """Put the new app in the place of the old one; `False` when that was changed meanwhile.

        Raises:
            Conflict: another app has this bundle id or this name.
        """
        unchanged = {"_id": old.id, "name": old.name, "updated_at": old.updated_at}
        change = _codec.document(new) | await self._key_change(old, new.name)
        del change["_id"]
        return await self._change(unchanged, change) is not None

    async def page(self, *, after: str = "", limit: int) -> Page[App]:
        """The apps whose ids follow `after`, the oldest first."""
        query = {"_id": {"$gt": after}}
        return await read_page(self._apps, query, _codec.value, order=("_id",), limit=limit, batch=_BATCH)

    async def update(self, app_id: str, *, name: str | None, bundle_id: str, at: int) -> App | None:
        """Change the app's bundle id and, unless it is `None`, its name; `None` when there is no such app.

        Raises:
            Conflict: another app has this bundle id or this name.
        """
        change: Document = {"bundle_id": bundle_id, "updated_at": at}
        if name is None:
            return await self._change({"_id": app_id}, change)
        while (app := await self.get(app_id)) is not None:
            named = change | {"name": name} | await self._key_change(app, name)
            # The present name has decided whether the new one is another.
            if changed := await self._change({"_id": app_id, "name": app.name}, named):
                return changed
        return None

    async def _change(self, query: Document, change: Document) -> App | None:
        with _unique():
            found: Any = await self._apps.find_one_and_update(
                query, {"$set": change}, return_document=ReturnDocument.AFTER
            )
        return _codec.maybe(found)

    async def _key_change(self, app: App, name: str) -> Document:
        """The fields that a new name changes beside the name; none where only the spelling is new, so that an app which
        shares its name stays as it is."""
        if name_key(name) == name_key(app.name):
            return {}
        await self._check_name_is_free(name, app.id)
        return {"name_key": name_key(name)}

    async def _check_name_is_free(self, name: str, app_id: str) -> None:
        holder = (await self.find_holders([name])).get(name_key(name), app_id)
        if holder != app_id:
            raise _name_taken(name)

    async def begin_removal(self, app_id: str) -> bool:
        """Let the app take nothing new from now on, for good; `False` when there is none."""
        with translate_errors():
            return (await self._apps.update_one({"_id": app_id}, {"$set": {"going": True}})).matched_count == 1

    async def confirm_removal(self, app_id: str) -> None:
        """Note that nothing of the app is at work any more, so that its deletion is done to its end."""
        with translate_errors():
            await self._apps.update_one({"_id": app_id, "going": True}, {"$set": {"confirmed": True}})

    async def find_confirmed(self) -> list[str]:
        """The ids of the apps whose deletion is to be done to its end."""
        with translate_errors():
            found = await self._apps.find({"confirmed": True}, {"_id": 1}).to_list()
        return [document["_id"] for document in found]

    async def remove(self, app_id: str) -> bool:
        """Forget the app; `False` when there is none. The caller removes its belongings first."""
        with translate_errors():
            return (await self._apps.delete_one({"_id": app_id})).deleted_count == 1


def _document(app: App) -> Document:
    return _codec.document(app) | {"name_key": name_key(app.name)}


def _age(document: Document) -> tuple[int, str]:
    return document["created_at"], document["_id"]
