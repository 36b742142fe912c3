"""Jobs of messages from the request to the ledger: asked for over the API, planned, sent, and read over the API."""

import csv
from collections.abc import AsyncIterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from services.wiring.api import build_api
from services.wiring.rooms import Rooms
from shared.jobs.rules.events import Doer
from shared.jobs.rules.jobs import Job
from shared.messages.rules.credentials import Credential
from shared.messages.rules.ledger import MessageState
from tests.providers.fakes import FakeProcess
from tests.providers.rules import Rule
from tests.services.api.client import ADMIN, Client
from tests.services.api.conftest import _execute
from tests.services.worker.messages.post import BUCKET, Post, post_office
from tests.waiting import until

pytestmark = [pytest.mark.sending, pytest.mark.native]

ROWS = 230


@pytest_asyncio.fixture
async def post(mongo_database: str, push_database: str, tmp_path: Path, fake: FakeProcess) -> AsyncIterator[Post]:
    admin = {"CARILLON_API_FIRST_ADMIN": ADMIN, "CARILLON_API_TRUSTED_PROXIES": "127.0.0.0/8"}
    async with post_office(mongo_database, push_database, tmp_path, fake, **admin) as opened:
        yield opened


@pytest.fixture
def api(post: Post) -> Client:
    return Client(build_api(Rooms(post.servers)), {"x-forwarded-email": ADMIN})


@pytest_asyncio.fixture
async def table(post: Post, push_database: str) -> str:
    """A table of recipients for accounts of the kind `http`."""
    name = f"{post.app.name}_http"
    await _execute(
        push_database,
        f"CREATE TABLE {name} (seq_id bigint, recipient text, name text)",
        f"CREATE INDEX ON {name} (seq_id)",
        f"INSERT INTO {name} SELECT n, 'r' || n || '@example.com', 'n' || n FROM generate_series(1, {ROWS}) n",
    )
    return name


def write_file(post: Post, content: str) -> str:
    (post.folder / BUCKET).mkdir(exist_ok=True)
    (post.folder / BUCKET / "people.csv").write_text(content)
    return f"{BUCKET}/people.csv"


async def ask(post: Post, api: Client, credential: Credential, **body: Any) -> Job:
    made = await api.post(f"/apps/{post.app.id}/jobs?template=hello", {"credential": credential.name, **body})
    assert made.status == 201, made.body
    job: Job | None = await post.store.jobs.view(made.json["id"])
    assert job is not None
    return job


async def test_a_job_over_a_file_is_told_to_its_last_message(post: Post, api: Client) -> None:
    await post.fake.answer(always=Rule(status=202))
    credential = await post.credential()
    await post.fake.answer(Rule(status=400), always=Rule(status=202))
    path = write_file(post, "Name,Recipient\nAna,ana@example.com\nBob,bob@example.com\nAna,ana@example.com\n")
    job = await ask(post, api, credential, csvPath=path)
    await post.closed(job)
    shown = (await api.get(f"/apps/{post.app.id}/jobs/{job.id}?exact=true")).json
    counts = shown["messages"]
    assert {name: counts[name] for name in ("planned", "unsent", "sent", "failed", "duplicates")} == {
        "planned": 2, "unsent": 0, "sent": 1, "failed": 1, "duplicates": 1,
    }  # fmt: skip
    assert shown["reasons"] == {"refused": 1}
    exported = await api.download(f"/apps/{post.app.id}/jobs/{job.id}/messages", "text/csv")
    rows = [*csv.DictReader(StringIO(exported.body.decode()))]
    assert [row["recipient"] for row in rows] == ["ana@example.com", "bob@example.com"]
    assert sorted(row["state"] for row in rows) == ["failed", "sent"]
    found = await api.get(f"/apps/{post.app.id}/messages?recipient=bob@example.com")
    assert [message["id"] for message in found.json] == [rows[1]["id"]]


async def test_a_job_over_a_table_sends_to_those_that_the_filters_keep(post: Post, api: Client, table: str) -> None:
    job = await ask(post, api, await post.credential(), filters={"name": "n1,n2,n3"})
    await post.closed(job)
    assert job.table == table
    listed = (await api.get(f"/apps/{post.app.id}/jobs/{job.id}/messages")).json
    assert [message["recipient"] for message in listed] == [f"r{n}@example.com" for n in (1, 2, 3)]


@pytest.mark.parametrize(("duplicates", "sent", "repeats"), [("once", 4, 3), ("each", 7, 0)])
async def test_who_stands_in_a_table_twice_is_written_to_once(
    post: Post, api: Client, table: str, push_database: str, duplicates: str, sent: int, repeats: int
) -> None:
    await _execute(
        push_database,
        f"DELETE FROM {table} WHERE seq_id > 3",
        f"INSERT INTO {table} VALUES (4, ' r1@example.com ', 'again'), (5, 'x', 'x'), (6, 'r2@example.com', 'a'), "
        "(7, 'x', 'y')",
    )
    job = await ask(post, api, await post.credential(), duplicates=duplicates)
    await post.closed(job)
    shown = (await api.get(f"/apps/{post.app.id}/jobs/{job.id}?exact=true")).json["messages"]
    assert (shown["planned"], shown["sent"], shown["duplicates"]) == (sent, sent, repeats)
    listed = (await api.get(f"/apps/{post.app.id}/jobs/{job.id}/messages")).json
    recipients = [message["recipient"] for message in listed]
    assert sorted({*recipients}) == ["r1@example.com", "r2@example.com", "r3@example.com", "x"]
    assert len(recipients) == len(await post.called()) == sent


async def test_a_file_with_too_many_recipients_is_sent_to_nobody(post: Post, api: Client) -> None:
    credential = await post.credential()
    path = write_file(post, "Name,Recipient\n" + "".join(f"n,r{row}@example.com\n" for row in range(30)))
    job = await ask(post, api, credential, csvPath=path, maxRecipients=29)
    stopped = await post.closed(job)
    assert "more than the 29 recipients that maxRecipients allows" in stopped.failure
    assert await post.called() == []
    whole = await ask(post, api, credential, csvPath=path, maxRecipients=30)
    await post.closed(whole)
    assert len(await post.called()) == 30


@pytest.mark.parametrize(("most", "fits"), [(ROWS - 1, False), (ROWS, True)])
async def test_a_table_with_too_many_recipients_stops_the_job(
    post: Post, api: Client, table: str, most: int, fits: bool
) -> None:
    credential = await post.credential(rate=0.05, max_in_flight=20)  # batches of 20
    job = await ask(post, api, credential, maxRecipients=most)
    if not fits:
        stopped = await post.closed(job)
        assert f"more than the {most} recipients" in stopped.failure
        assert len(await post.called()) <= 2, "what was fed before is not called any more"
        return
    await post.has_calls(1)
    shown = (await api.get(f"/apps/{post.app.id}/jobs/{job.id}?exact=true")).json
    assert shown["state"] == "running"
    assert shown["messages"]["planned"] == sum(
        shown["messages"][state]
        for state in ("unsent", "sending", "sent", "delivered", "read", "failed", "invalid", "unknown")
    )


async def test_a_suppressed_address_is_not_called_though_its_row_has_another_now(
    post: Post, api: Client, table: str, push_database: str
) -> None:
    await post.fake.answer(always=Rule(status=202))
    credential = await post.credential()
    await post.fake.answer(always=Rule(status=400))
    job = await ask(post, api, credential, filters={"name": "n1"})
    ended = await post.closed(job)
    assert len(await post.called()) == 1
    barred = {"channel": "other", "address": "r1@example.com"}
    assert (await api.post(f"/apps/{post.app.id}/suppressions", barred)).status == 201
    await _execute(push_database, f"UPDATE {table} SET recipient = 'new@example.com' WHERE seq_id = 1")
    await post.rooms.messages.retry.retry(ended, [MessageState.FAILED], by=Doer("user", "ana"))
    await post.closed(job)
    [last] = await post.entries(job)
    assert (last.to, last.attempt) == ("r1@example.com", 1), "a message went to an address that is suppressed"
    assert len(await post.called()) == 1


async def test_the_columns_of_a_new_address_do_not_go_to_the_old_one(
    post: Post, api: Client, table: str, push_database: str
) -> None:
    await post.fake.answer(always=Rule(status=202))
    credential = await post.credential()
    await post.fake.answer(always=Rule(status=400))
    ended = await post.closed(await ask(post, api, credential, filters={"seq_id": "1,2"}))
    await _execute(push_database, f"UPDATE {table} SET recipient = 'new@example.com', name = 'Bob' WHERE seq_id = 1")
    await post.fake.answer(always=Rule(status=202))
    await post.rooms.messages.retry.retry(ended, [MessageState.FAILED], by=Doer("user", "ana"))
    closed = await post.closed(ended)
    first, second = await post.entries(ended)
    assert (first.to, first.state, first.reason) == ("r1@example.com", MessageState.INVALID, "address-changed")
    assert (second.to, second.state) == ("r2@example.com", MessageState.SENT)
    assert closed.reasons == {"address-changed": 1}
    assert "Bob" not in str((await post.fake.tell()).arrived)


async def test_a_table_whose_rows_share_a_key_is_sent_to_nobody(
    post: Post, api: Client, table: str, push_database: str
) -> None:
    await _execute(push_database, f"UPDATE {table} SET seq_id = 7, name = 'same' WHERE seq_id IN (1, 2, 3)")
    for duplicates in ("once", "each"):
        job = await ask(post, api, await post.credential(), filters={"name": "same"}, duplicates=duplicates)
        stopped = await post.closed(job)
        assert "several rows" in stopped.failure and "seq_id 7" in stopped.failure
    assert await post.called() == []


async def test_a_row_beside_one_that_was_sent_has_nobody_sent_twice(
    post: Post, api: Client, table: str, push_database: str
) -> None:
    """A key is given a second time while the job is stopped: which row was sent is told by nothing."""
    credential = await post.credential(rate=0.1)
    job = await ask(post, api, credential, filters={"name": "n7,n8,n9,same"})
    await post.has_calls(1)
    await post.rooms.jobs.flow.stop(job.key)
    stopped = await post.closed(job)
    retry = post.rooms.messages.retry
    await _execute(push_database, f"INSERT INTO {table} VALUES (7, 'a@example.com', 'same')")
    await retry.retry(stopped, [MessageState.UNSENT], by=Doer("user", "ana"))
    refused = await post.closed(job)
    assert "several rows" in refused.failure
    assert len(await post.called()) == len(await post.entries(job))
    await _execute(push_database, f"DELETE FROM {table} WHERE recipient = 'a@example.com'")
    await post.hasten(credential)
    await retry.retry(refused, [MessageState.UNSENT], by=Doer("user", "ana"))
    await post.closed(job)
    assert [entry.to for entry in await post.entries(job)] == [f"r{number}@example.com" for number in (7, 8, 9)]
    assert len(await post.called()) == 3, "each once"


async def test_the_states_add_up_though_rows_have_left_the_table(
    post: Post, api: Client, table: str, push_database: str
) -> None:
    job = await ask(post, api, await post.credential(rate=2), filters={"name": "n1,n2,n3,n4"})
    await post.has_calls(1)
    await post.rooms.jobs.flow.pause(job.key)

    async def is_put_back() -> bool:
        return not any((await post.store.batches.find_on_their_way(job.key)).values())

    await until(is_put_back)
    gone = [entry.to for entry in await post.entries(job)]
    await _execute(push_database, *(f"DELETE FROM {table} WHERE recipient = '{to}'" for to in gone))
    await post.rooms.jobs.flow.resume(job.key)
    await post.closed(job)
    counts = await post.store.message_sums.count(job.key)
    assert sum(counts.by_state.values()) + counts.unsent == counts.planned, counts
