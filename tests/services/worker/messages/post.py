"""A post office: worker and scheduler in this process, on a real store, with a provider that runs as a process."""

import itertools
import secrets
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from services.wiring.process import build_service, set_up
from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from shared.accounts.rules.apps import App
from shared.core.instants import from_ms, ms
from shared.jobs.moves import fresh_incarnation
from shared.jobs.rules.jobs import Job, JobStatus
from shared.jobs.rules.templates import Template
from shared.messages.rules.answers import Channel
from shared.messages.rules.credentials import Credential
from shared.messages.rules.jobs import MESSAGE_SERVICE, MessageOptions, options_as_fields
from shared.messages.rules.ledger import Message, MessageState
from shared.messages.rules.singles import Pending, SingleWish
from shared.runtime.configuration import load
from shared.runtime.lifecycle import Component
from tests.providers.fakes import FakeProcess
from tests.waiting import SECONDS, until

BUCKET = "lists"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SHORT_CALLS = {"CARILLON_PROVIDERS_CALL_SECONDS": "3"}
"""So a dead worker's messages are judged soon."""

_HI: Mapping[str, Any] = {"text": "Hi {{name}}"}
_numbers = itertools.count(1)


@dataclass
class Post:
    """What a test does with it."""

    servers: Servers
    rooms: Rooms
    fake: FakeProcess
    folder: Path
    app: App

    @property
    def store(self) -> Any:
        return self.servers.store

    async def credential(
        self, *, rate: float = 500, secret: Mapping[str, str] | None = None, **fields: Any
    ) -> Credential:
        """An account at the fake, which has taken a test message."""
        now = datetime.now(UTC)
        name = f"post-{next(_numbers)}"
        usual: dict[str, Any] = {"kind": "http", "fields": {"url": f"{self.fake.url}/send"}, "max_in_flight": 200}
        usual["test_recipient"] = "ana@example.com"
        given = usual | fields
        draft = Credential(
            id=name, app_id=self.app.id, name=name, rate=rate, created_by="ana",
            created_at=now, updated_at=now,
            **given,
        )  # fmt: skip

        async def keep(draft: Credential) -> Credential:
            return draft

        if secret is None:
            secret = {"signingSecret": SECRET} if draft.kind == "http" else {}
        flow = self.rooms.messages.credentials
        made = await flow.create(draft, secret, self.app, claim=keep)
        await self.fake.forget()
        return made

    async def hasten(self, credential: Credential, *, rate: float = 500) -> None:
        """Give an account this rate from now on."""
        messages = self.rooms.messages
        await messages.credentials.change(credential, lambda known: replace(known, rate=rate))
        await messages.feed.feed_credential(credential.id)

    async def job(
        self,
        credential: Credential,
        recipients: Sequence[str] | int,
        *,
        batch_size: int = 20,
        starts_in: int = 0,
        **options: Any,
    ) -> Job:
        """A job over a file of these recipients, or of so many, which starts in so many seconds."""
        number = next(_numbers)
        people = [f"r{row}@example.com" for row in range(recipients)] if isinstance(recipients, int) else recipients
        (self.folder / BUCKET).mkdir(exist_ok=True)
        lines = ["Name,Recipient", *(f"n{row},{address}" for row, address in enumerate(people))]
        (self.folder / BUCKET / f"{number}.csv").write_text("\n".join(lines) + "\n")
        given: dict[str, Any] = {"channel": Channel.OTHER, "batch_size": batch_size} | options
        chosen = MessageOptions(recipient_column="recipient", **given)
        job = Job(
            id=str(uuid.uuid4()), incarnation=fresh_incarnation(), app_id=self.app.id, app_name=self.app.name,
            service=MESSAGE_SERVICE, credential_id=credential.id, table_kind=credential.kind,
            options=options_as_fields(chosen), template_names=("hello",), created_by="ana", group_id=str(uuid.uuid4()),
            csv_path=f"{BUCKET}/{number}.csv", created_at=number,
            starts_at=time.time_ns() + starts_in * 10**9 if starts_in else 0,
            status=JobStatus.SCHEDULED if starts_in else JobStatus.RUNNING,
        )  # fmt: skip
        started, _ = await self.rooms.jobs.flow.start(job)
        return started

    async def accept(
        self,
        credential: Credential,
        to: Sequence[str],
        *,
        after: float = 0,
        content: str = '{"text":"Hi"}',
        **fields: Any,
    ) -> set[str]:
        """Have single messages sent to these, in so many seconds; returns their ids."""
        now = from_ms(ms(datetime.now(UTC)))
        due = now + timedelta(seconds=after)
        wish: dict[str, Any] = {"channel": Channel.OTHER} | fields
        single = SingleWish(namespace="token:t", created_at=now, due=due, **wish)
        waits = Pending(credential_id=credential.id, namespace="token:t", due=due)
        messages = [
            Message(
                id=str(uuid.uuid4()), app_id=self.app.id, credential_id=credential.id, to=address, v=1, single=single,
                pending=waits,
            )
            for address in to
        ]  # fmt: skip
        contents = {message.id: content for message in messages}
        await self.rooms.messages.singles.accept(messages, contents)
        return {message.id for message in messages}

    async def ended(self, ids: set[str], *, seconds: float = SECONDS) -> Counter[MessageState]:
        """How these single messages ended, once none is pending."""
        found: dict[str, Message] = {}

        async def is_ended() -> bool:
            found.update(await self.store.messages.with_ids(sorted(ids)))
            return len(found) == len(ids) and not any(message.pending for message in found.values())

        await until(is_ended, seconds=seconds)
        return Counter(message.state for message in found.values())

    async def closed(self, job: Job, *, seconds: float = SECONDS) -> Job:
        """The job once it has nothing left to do."""
        found: list[Job] = []

        async def is_closed() -> bool:
            now = await self.store.jobs.view(job.key)
            found[:] = [now]
            return now is not None and not now.open

        await until(is_closed, seconds=seconds)
        return found[0]

    async def entries(self, job: Job) -> list[Message]:
        """The job's entries in the ledger, in their order."""
        found: list[Message] = []
        for ordinal in range(1_000):
            batch = await self.store.batches.get(job.key, ordinal)
            if batch is None:
                return found
            found += sorted((await self.store.messages.read_batch(job.incarnation, ordinal)).values(), key=_id_of)
        raise AssertionError("too many batches")

    async def states(self, job: Job) -> Counter[MessageState]:
        return Counter(entry.state for entry in await self.entries(job))

    async def called(self) -> list[str]:
        """The ids of the messages that the provider was called with, in the order of the calls."""
        told = await self.fake.tell()
        return [one.headers["carillon-message"].partition("~")[0] for one in told.arrived]

    async def has_calls(self, count: int, *, seconds: float = SECONDS) -> None:
        """Wait until the provider has had so many."""

        async def has() -> bool:
            return len(await self.called()) >= count

        await until(has, seconds=seconds)


async def add_app(servers: Servers, body: Mapping[str, Any] = _HI) -> App:
    """An app with a template that says this, in the store."""
    name = f"t{secrets.token_hex(5)}"
    app = App(id=str(uuid.uuid4()), name=name, bundle_id=name, created_by="ana", created_at=1, updated_at=1)
    await servers.store.apps.add(app)
    template = Template(id=name, app_id=app.id, name="hello", locale="en", body=dict(body), created_at=1)
    await servers.store.templates.add(template)
    return app


@asynccontextmanager
async def post_office(
    store_url: str, push_database: str, folder: Path, fake: FakeProcess, **settings: str
) -> AsyncIterator[Post]:
    """The office, open."""
    blobs = folder / "blobs"
    blobs.mkdir()
    loaded = load(
        {
            "CARILLON_STORE_URL": store_url,
            "CARILLON_AUDIENCE_URL": push_database,
            "CARILLON_BROKER_URL": "memory://",
            "CARILLON_STREAM_URL": f"local://{folder}/stream.db",
            "CARILLON_BLOBS_URL": f"{blobs.as_uri()}",
            "CARILLON_BLOBS_ALLOWED_BUCKETS": BUCKET,
            "CARILLON_PROVIDERS_SECRET_KEYS": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
            "CARILLON_PROVIDERS_ALLOWED_NETWORKS": "127.0.0.0/8",
            # Wide, so that a slow machine loses no instant, breaks off no call and takes no live worker for dead.
            "CARILLON_PROVIDERS_CALL_SECONDS": "10",
            "CARILLON_PROVIDERS_LATE_MS": "300",
            "CARILLON_PROVIDERS_CLOCK_MS": "200",
            "CARILLON_PROVIDERS_SANDBOX_FILE": f"{folder}/sandbox.ndjson",
            "CARILLON_SCHEDULER_UPKEEP_SECONDS": "0.5",
            "CARILLON_SCHEDULER_SWEEP_SECONDS": "0.5",
            "CARILLON_SCHEDULER_STALE_SECONDS": "10",
            "CARILLON_WORKER_MAX_BATCH_FAILURE": "1",
        }
        | settings
    )
    servers = Servers(loaded, service="test")
    rooms = Rooms(servers)
    await set_up(rooms)
    app = await add_app(servers)
    components: list[Component] = [*build_service("worker", rooms), *build_service("scheduler", rooms)]
    for component in components:
        await component.start()
    try:
        yield Post(servers, rooms, fake, blobs, app)
    finally:
        for component in reversed(components):
            await component.stop()
        await servers.close()


def _id_of(message: Message) -> str:
    return message.id
