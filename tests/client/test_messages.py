"""Jobs that send messages through both clients, against the real API."""

from datetime import UTC, datetime

import msgspec
import pytest

from carillon import AsyncCarillon, Credential, HaltRule, Invalid, JobQueue, MessageJob, NotFound, Redacted
from shared.messages.rules.ledger import Message
from shared.messages.store_ledger import EntryChange
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

SANDBOX = Credential(name="play", kind="sandbox", test_recipient="ana@example.com")


async def test_a_job_is_made_and_its_messages_are_read(client: AsyncCarillon, house: House) -> None:
    app_id = await house.app_with_template()
    credential = await client.credentials.create(app_id, SANDBOX)
    path = await house.file("people.csv", b"recipient\nana@example.com\n")
    wanted = MessageJob(credential="play", template="like", csv_path=path, share=3, halt_on=None, duplicates="each")
    made = await client.jobs.create(app_id, wanted, idempotency_key=app_id)
    assert (made.service, made.credential_id) == ("message", credential.id)
    assert (await client.jobs.create(app_id, wanted, idempotency_key=app_id)).id == made.id
    shown = await client.jobs.get(app_id, made.id, exact=True)
    assert shown.options is not None and shown.messages is not None
    assert (shown.options["share"], shown.options["haltOn"], shown.options["duplicates"]) == (3, None, "each")
    assert (shown.messages.planned, shown.queue) == (0, JobQueue(jobs=0, messages=0, starts_in=0.0))
    assert [each async for each in client.jobs.messages(app_id, made.id)] == []


async def test_a_preview_tells_who_would_be_called_and_when(client: AsyncCarillon, house: House) -> None:
    app_id = await house.app_with_template()
    await client.credentials.create(app_id, SANDBOX)
    path = await house.file("twice.csv", b"recipient,name\nana@example.com,A\nana@example.com,B\n")
    told = await client.jobs.preview(app_id, MessageJob(credential="play", template="like", csv_path=path))
    assert told.messages is not None and told.audience is None
    assert (told.messages.recipients, told.messages.repeated, told.messages.columns) == (1, 1, ("recipient", "name"))
    assert (told.messages.queue.jobs, told.messages.queue.starts_in) == (0, 0.0)
    assert told.messages.estimated_end is not None
    assert [sample.locale for sample in told.messages.samples] == ["en"]
    [credential] = [each async for each in client.credentials.list(app_id)]
    standing = await client.credentials.get(app_id, credential.id)
    assert (standing.limited_by, standing.effective_rate, standing.queue.messages) == ("work", 50, 0)


async def test_messages_are_found(client: AsyncCarillon, house: House) -> None:
    app_id = await house.app_with_template()
    credential = await client.credentials.create(app_id, SANDBOX)
    path = await house.file("people.csv", b"recipient\nana@example.com\n")
    made = await client.jobs.create(app_id, MessageJob(credential=credential.id, template="like", csv_path=path))
    job = await house.store.jobs.view(made.id)
    assert job is not None
    entry = Message(
        id=f"{job.incarnation}.00000000.00000", app_id=app_id, credential_id=credential.id, to="ana@example.com",
        ref=f"{credential.id}/SM7", until=datetime(2030, 1, 1, tzinfo=UTC),
    )  # fmt: skip
    await house.store.messages.fold([EntryChange(None, entry)])
    shown = await client.messages.get(app_id, entry.id)
    assert (shown.id, shown.recipient, shown.provider_id, shown.earlier) == (entry.id, entry.to, "SM7", ())
    for found in (
        client.messages.find(app_id, recipient="ana@EXAMPLE.com"),
        client.messages.find(app_id, "ana@EXAMPLE.com"),
        client.messages.find(app_id, credential="play", provider_id="SM7"),
        client.jobs.messages(app_id, made.id, state="unsent"),
    ):
        assert [message.id async for message in found] == [entry.id]
    with pytest.raises(NotFound):
        await client.messages.get(app_id, "nothing")
    redacted = await client.messages.redact(app_id, "ana@EXAMPLE.com", reason="she asked for it")
    assert redacted == Redacted(redacted=1, more=False)
    shown = await client.messages.get(app_id, entry.id)
    assert (shown.recipient, shown.redacted, shown.redacted_at is None) == ("", True, False)
    for strange in (".", "..", "/abc", "a//b/", "x y@example.com", "100%2F+?#"):
        assert (await client.messages.redact(app_id, strange)).redacted == 0
        assert [message async for message in client.messages.find(app_id, recipient=strange)] == []
    with pytest.raises(Invalid):
        await client.messages.redact(app_id, "")


async def test_what_is_wrong_comes_back(client: AsyncCarillon, house: House) -> None:
    app_id = await house.app_with_template()
    with pytest.raises(Invalid) as refused:
        await client.jobs.create(app_id, MessageJob(credential="nobody", template="like", csv_path="a/b.csv"))
    assert refused.value.field == "credential"


async def test_what_is_unset_is_left_to_the_server() -> None:
    bare = msgspec.json.decode(MessageJob(credential="c", template="t").encoded())
    assert bare == {"credential": "c", "filters": {}, "share": 1, "startsAt": 0, "expiresAt": 0}
    whole = MessageJob(credential="c", template="t", halt_on=HaltRule(share=0.5), max_recipients=7, transactional=True)
    assert msgspec.json.decode(whole.encoded()) == bare | {
        "haltOn": {"share": 0.5, "minimum": 10},
        "maxRecipients": 7,
        "transactional": True,
    }
