"""What stands in the database, read past the product: every document of every collection."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pymongo
from bson import BSON

from shared.accounts.rules.apps import App
from shared.accounts.rules.callers import Token, User, WebSession
from shared.bus.rules.replays import Replay
from shared.bus.rules.subscriptions import subscription_of
from shared.bus.rules.wake_ups import QUEUE_OWNER
from shared.clock.rules.occurrences import Occurrence
from shared.clock.rules.outcomes import DeadLetter
from shared.clock.rules.schedules import Schedule
from shared.console.rules.bulk_actions import BulkAction
from shared.jobs.rules.groups import Group
from shared.jobs.rules.jobs import Job, split_key
from shared.jobs.rules.templates import Template
from shared.jobs.rules.uploads import FileUpload
from shared.messages.rules.credentials import Credential
from shared.messages.rules.ledger import Message
from shared.messages.rules.singles import CREDENTIAL, SINGLES
from shared.messages.rules.suppressions import Suppression

Document = dict[str, Any]

_VALUES: dict[str, type[msgspec.Struct]] = {
    "apps": App,
    "templates": Template,
    "users": User,
    "tokens": Token,
    "sessions": WebSession,
    "credentials": Credential,
    "messages": Message,
    "suppressions": Suppression,
    "jobs": Job,
    "groups": Group,
    "schedules": Schedule,
    "occurrences": Occurrence,
    "dead_letters": DeadLetter,
    "bulk_actions": BulkAction,
    "bus_replays": Replay,
    "uploads": FileUpload,
}
AUDIT = "audit"
OF_PROCESSES = {"processes", "minutes"}
"""What processes tell of themselves, whatever is asked of them."""

COUNTERS = {("bus_subscriptions", "registry")}
"""What every change of a kind raises, whoever makes it."""

# Of a token, whoever is let in: that says nothing of what a request did.
NOTED_BY_THE_WAY = "last_used_at"
# What a document refers to: its field, and the collection that must have a document of that id.
_PARENTS = dict.fromkeys(("templates", "jobs", "groups", "credentials", "suppressions"), ("app_id", "apps"))


@dataclass(frozen=True)
class Snapshot:
    """The digest of each document, by collection and id, and the fields that each collection has."""

    digests: dict[tuple[str, str], str]
    fields: dict[str, frozenset[str]]

    def differences(self, later: "Snapshot") -> list[str]:
        """What was added, changed or removed since, but for the audit: that somebody tried is written down."""
        return [
            f"{'added' if key not in self.digests else 'removed' if key not in later.digests else 'changed'}: "
            f"{key[0]} {key[1]}"
            for key in sorted((self.digests.keys() | later.digests.keys()) - COUNTERS)
            if self.digests.get(key) != later.digests.get(key) and key[0] != AUDIT
        ]

    def harmed(self, later: "Snapshot") -> list[str]:
        """What of this was changed or removed since."""
        return [difference for difference in self.differences(later) if not difference.startswith("added")]


class Database:
    """The API's database, from outside."""

    def __init__(self, url: str) -> None:
        self._client: pymongo.MongoClient[Document] = pymongo.MongoClient(url, serverSelectionTimeoutMS=5000)
        self.database = self._client.get_default_database()

    def drop(self) -> None:
        self._client.drop_database(self.database.name)
        self._client.close()

    def documents(self) -> Iterator[tuple[str, Document]]:
        for name in sorted(set(self.database.list_collection_names()) - OF_PROCESSES):
            for document in self.database[name].find().batch_size(20):
                yield name, document

    def snapshot(self) -> Snapshot:
        """Everything as it stands."""
        digests: dict[tuple[str, str], str] = {}
        fields: dict[str, set[str]] = {name: _fields(kind) for name, kind in _VALUES.items()}
        for name, document in self.documents():
            document.pop(NOTED_BY_THE_WAY, None)
            digests[name, str(document["_id"])] = hashlib.sha256(BSON.encode(document)).hexdigest()
            fields.setdefault(name, set()).update(document)
        return Snapshot(digests, {name: frozenset(found) for name, found in fields.items()})

    def faults(self, valid: Snapshot) -> list[str]:
        """What no request may leave behind: a field that no valid request makes (those of `valid` do), a name that
        means something to MongoDB, a document without the one that it belongs to."""
        found = []
        for name, document in self.documents():
            where = f"{name} {document['_id']}"
            known = valid.fields.get(name)
            if known is None:
                found.append(f"{where}: a collection that no valid request fills")
                continue
            found += [f"{where}: unknown field {field!r}" for field in document.keys() - known]
            found += [f"{where}: forbidden name {field!r}" for field in _forbidden(document)]
            found += [f"{where}: an orphan" for _ in range(self._orphan(name, document))]
        return found

    def of_subscriptions(self, namespace: str) -> set[str]:
        """The ids of a namespace's subscriptions of the bus and of what belongs to them."""
        found = {str(each["_id"]) for each in self.database["bus_subscriptions"].find({"namespace": namespace})}
        wake_ups = {"owner": {"$regex": "|".join(f"^{QUEUE_OWNER}/{id}[.]" for id in found) or "^$"}}
        return found | {str(each["_id"]) for each in self.database["occurrences"].find(wake_ups)}

    def forget(self, app_id: str) -> None:
        """Take what fills the database of one app away again, with the starts of its jobs."""
        for job in self.database["jobs"].find({"app_id": app_id}, {"_id": 1}):
            self.database["occurrences"].delete_many({"owner": {"$regex": f"^job/{re.escape(job['_id'])}[./]"}})
        for name in ("templates", "jobs"):
            self.database[name].delete_many({"app_id": app_id})

    def forget_schedules(self, namespace: str) -> None:
        """Take the schedules of a namespace away again, with what is pending of them."""
        self.database["occurrences"].delete_many({"owner": {"$regex": f"^schedule/{re.escape(namespace)}/"}})
        self.database["schedules"].delete_many({"namespace": namespace})

    def _orphan(self, name: str, document: Document) -> bool:
        if name == "occurrences":
            return self._without_owner(document)
        if name not in _PARENTS:
            return False
        field, parents = _PARENTS[name]
        return self.database[parents].find_one({"_id": document[field]}, {"_id": 1}) is None

    def _without_owner(self, occurrence: Document) -> bool:
        kind, _, rest = occurrence["owner"].partition("/")
        if kind == "schedule":
            return self.database["schedules"].find_one({"_id": rest}, {"_id": 1}) is None
        if kind == QUEUE_OWNER:
            subscription = {"_id": subscription_of(rest)}
            return self.database["bus_subscriptions"].find_one(subscription, {"_id": 1}) is None
        if kind in (CREDENTIAL, SINGLES):
            return self.database["credentials"].find_one({"_id": rest}, {"_id": 1}) is None
        return self.database["jobs"].find_one({"_id": split_key(rest.partition("/")[0])[0]}, {"_id": 1}) is None


def _fields(kind: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(kind)} - {"id"} | {"_id"}


def _forbidden(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key.startswith("$") or "." in key or "\0" in key:
                yield key
            yield from _forbidden(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _forbidden(inner)
