"""Templates: one document for each name and locale of an app."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from pymongo import ASCENDING, ReturnDocument
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError

from shared.core.errors import Conflict
from shared.drivers.mongo.documents import (
    BATCH,
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
from shared.drivers.mongo.transactions import run_transaction
from shared.jobs.rules.templates import Template

_NAMES = 1_000
_codec = Codec(Template, json=("body", "defaults"))


class Outline(NamedTuple):
    """A template of a bulk import: its key, and the bytes of JSON of its body and defaults."""

    name: str
    locale: str
    size: int


def _clash() -> Conflict:
    return Conflict("the app has a template with this name and locale (name_locale_app)", field="name")


class Templates(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._database = database
        self._templates = database["templates"]

    async def setup(self) -> None:
        await self._templates.create_index(
            [("app_id", ASCENDING), ("name", ASCENDING), ("locale", ASCENDING)], unique=True
        )
        await self._templates.create_index([("app_id", ASCENDING), ("_id", ASCENDING)])

    async def add(self, template: Template) -> None:
        with translate_errors(duplicate=_clash):
            await self._templates.insert_one(_codec.document(template))

    async def add_many(self, templates: Sequence[Template]) -> None:
        """Insert all of them or none, in one transaction. Raises `Conflict` if two of them, or one of them and a stored
        one, have the same name and locale."""
        documents = [_codec.document(template) for template in templates]

        async def insert(session: AsyncClientSession) -> None:
            await self._templates.insert_many(documents, session=session)

        if not documents:
            return
        try:
            await run_transaction(self._database, insert)
        except BulkWriteError as error:  # of duplicate keys alone
            raise _clash() from error

    async def add_new(self, templates: Sequence[Template]) -> set[int]:
        return await insert_new(self._templates, [_codec.document(template) for template in templates])

    async def with_ids(self, template_ids: Sequence[str]) -> dict[str, Template]:
        return await with_ids(self._templates, _codec, template_ids)

    async def ids_of(self, app_ids: Sequence[str], names: Sequence[str]) -> dict[tuple[str, str, str], str]:
        query = {"app_id": {"$in": list(app_ids)}, "name": {"$in": list(names)}}
        found = await self._templates.find(query, {"app_id": 1, "name": 1, "locale": 1}).to_list()
        return {(document["app_id"], document["name"], document["locale"]): document["_id"] for document in found}

    async def replace(self, old: Template, new: Template) -> bool:
        return await replace_unchanged(self._templates, _codec.document(old), _codec.document(new), duplicate=_clash)

    async def get(self, template_id: str) -> Template | None:
        return _codec.maybe(await self._templates.find_one({"_id": template_id}))

    async def page(self, app_id: str, *, after: str = "", limit: int) -> Page[Template]:
        query = {"app_id": app_id, "_id": {"$gt": after}}
        return await read_page(self._templates, query, _codec.value, order=("_id",), limit=limit)

    async def find_named(self, app_id: str, names: Sequence[str]) -> list[Template]:
        cursor = self._templates.find({"app_id": app_id, "name": {"$in": list(names)}}, batch_size=BATCH)
        return [template async for template in _codec.values(cursor)]

    async def find_names(self, app_id: str) -> set[str]:
        """The names of the app's first 1,000 templates, to explain an unknown name."""
        cursor = self._templates.find({"app_id": app_id}, {"_id": 0, "name": 1}, sort=[("name", ASCENDING)])
        return {document["name"] for document in await cursor.limit(_NAMES).to_list()}

    async def outlines(self, app_id: str, names: Sequence[str]) -> list[Outline]:
        """The app's templates with one of these names, without their contents."""
        size = {"$add": [{"$strLenBytes": "$body"}, {"$strLenBytes": "$defaults"}]}
        pipeline: list[Document] = [
            {"$match": {"app_id": app_id, "name": {"$in": list(names)}}},
            {"$project": {"_id": 0, "name": 1, "locale": 1, "size": size}},
        ]
        return [Outline(**document) async for document in await self._templates.aggregate(pipeline)]

    async def update(
        self, app_id: str, template_id: str, *, name: str, locale: str, body: dict[str, Any],
        defaults: dict[str, Any] | None, at: int,
    ) -> Template | None:  # fmt: skip
        """Replace the template's content, and its defaults unless they are `None`; `None` if the app has no such
        template. Raises `Conflict` if the app has another one with this name and locale."""
        fields = {"name": name, "locale": locale, "body": json_text(body), "updated_at": at}
        if defaults is not None:
            fields["defaults"] = json_text(defaults)
        with translate_errors(duplicate=_clash):
            return _codec.maybe(
                await self._templates.find_one_and_update(
                    {"_id": template_id, "app_id": app_id}, {"$set": fields}, return_document=ReturnDocument.AFTER
                )
            )

    async def remove(self, app_id: str, template_id: str) -> bool:
        return (await self._templates.delete_one({"_id": template_id, "app_id": app_id})).deleted_count == 1

    async def remove_of(self, app_id: str) -> None:
        await self._templates.delete_many({"app_id": app_id})
