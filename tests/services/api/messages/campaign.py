"""Jobs that send messages, asked for over the API, and a ledger that says what became of them."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from shared.audience.rules.audiences import KeyRange
from shared.jobs.rules.batches import Batch
from shared.jobs.rules.jobs import Job, JobStatus, split_key
from shared.messages.rules.credentials import Credential
from shared.messages.rules.ledger import Message, MessageState, entry_id
from shared.messages.store_ledger import EntryChange, WriteResult
from tests.services.api.client import Reply
from tests.services.api.messages.conftest import Desk

NOW = datetime(2026, 12, 24, 14, tzinfo=UTC)
OWNER = "worker"
_names = itertools.count(1)


@dataclass
class Campaign:
    """An app with a template `hello`, and a credential in the sandbox."""

    desk: Desk
    app_id: str
    credential_id: str

    @property
    def jobs(self) -> str:
        return f"/apps/{self.app_id}/jobs"

    async def file(self, content: bytes = b"Recipient,Name\nana@example.com,Ana\n") -> str:
        return await self.desk.house.file(f"people-{next(_names)}.csv", content)

    async def post(self, *, template: str = "hello", **body: Any) -> Reply:
        """Ask for a job by the credential."""
        given = {"credential": self.credential_id} | body
        wanted = {name: value for name, value in given.items() if value is not ...}
        return await self.desk.admin.post(f"{self.jobs}?template={template}", wanted)

    async def made(self, **body: Any) -> Job:
        """A job over a file, as it is stored."""
        answer = await self.post(**({"csvPath": await self.file()} | body))
        assert answer.status == 201, answer.body
        job = await self.desk.house.store.jobs.view(answer.json["id"])
        assert job is not None
        return job

    async def credential(self, **fields: Any) -> Credential:
        """Another one, which nobody has tried out."""
        named: dict[str, Any] = {"id": f"00000000-0000-4000-8000-{next(_names):012}", "name": f"other-{next(_names)}"}
        standard: dict[str, Any] = {
            "app_id": self.app_id,
            "kind": "sandbox",
            "fields": {},
            "rate": 10.0,
            "max_in_flight": 20,
        }
        made: dict[str, Any] = {"test_recipient": "ana", "created_by": "me", "created_at": NOW, "updated_at": NOW}
        credential = Credential(**(named | standard | made | fields))
        assert await self.desk.house.store.credentials.add(credential)
        return credential

    async def plan(self, job: Job, sizes: Sequence[int], *, ends: bool = True) -> None:
        """Cut the job's audience into batches of these sizes, each of which somebody sends."""
        store = self.desk.house.store
        batches = [
            Batch(job_id=job.key, ordinal=ordinal, range=KeyRange(ordinal, ordinal + 1), size=size, owner=OWNER)
            for ordinal, size in enumerate(sizes)
        ]
        assert await store.batches.add_page(batches)
        await store.batches.add_end(job.key, len(batches))
        if ends:
            await store.jobs.end_plan(job.key, end=len(batches))

    async def note(self, job: Job, ordinal: int, entries: Mapping[int, dict[str, Any]]) -> list[Message]:
        """Write entries of rows of a batch, as its owner does."""
        standard: dict[str, Any] = {"app_id": self.app_id, "credential_id": self.credential_id, "attempt": 1, "v": 1}
        standard |= {"state": MessageState.SENT, "answered_at": NOW}
        made = [
            Message(
                id=entry_id(split_key(job.key)[1], ordinal, row),
                **(standard | {"to": f"ana{row}@example.com"} | fields),
            )
            for row, fields in entries.items()
        ]
        batch = Batch(job_id=job.key, ordinal=ordinal, range=KeyRange(0, 1), size=0)
        changes = [EntryChange(None, message) for message in made]
        assert await self.desk.house.store.messages.write(batch.id, OWNER, changes) is WriteResult.DONE
        return made

    async def hear(self, message: Message, **fields: Any) -> None:
        """Change an entry as a callback does."""
        after = replace(message, v=message.v + 1, **fields)
        assert await self.desk.house.store.messages.fold([EntryChange(message, after)]) is WriteResult.DONE

    async def close(self, job: Job, *, days_ago: float = 4_000) -> None:
        """End the job as if all had been sent."""
        store = self.desk.house.store
        moved = await store.jobs.move(job.key, to=JobStatus.STOPPED, only=frozenset({JobStatus.RUNNING}), at=1)
        assert moved is not None
        ended = await store.now() - timedelta(days=days_ago)
        since = dict.fromkeys(("kept_since", "personal_since", "ledger_since"), ended)
        await store.jobs._jobs.update_one({"_id": job.id}, {"$set": {"open": False} | since})

    async def ended(self, job: Job) -> Job:
        """The job as it stands now."""
        found = await self.desk.house.store.jobs.view(job.id)
        assert found is not None
        return found

    async def shown(self, job: Job, query: str = "") -> dict[str, Any]:
        answer = await self.desk.admin.get(f"{self.jobs}/{job.id}{query}")
        assert answer.status == 200, answer.body
        found: dict[str, Any] = answer.json
        return found


async def campaign_at(desk: Desk, **credential: Any) -> Campaign:
    """An app of its own."""
    app_id = await desk.house.app()
    template = {"name": "hello", "locale": "en", "body": {"text": "Hi {{name}}"}, "defaults": {}}
    made = await desk.admin.post(f"/apps/{app_id}/templates", template)
    assert made.status == 201, made.body
    shown = await desk.made(app_id, desk.in_sandbox(**credential))
    return Campaign(desk, app_id, shown["id"])
