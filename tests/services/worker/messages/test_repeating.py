"""What is sent again where nobody can tell whether the provider has it."""

from collections.abc import Iterator

import pytest

from shared.jobs.rules.templates import Template
from shared.messages.rules.answers import Channel
from shared.messages.rules.ledger import MessageState
from shared.runtime import faults
from tests.drivers.http.receiver import scripted
from tests.providers.test_smtp import LeavingServer
from tests.services.worker.messages.post import SECRET, SHORT_CALLS, Post

pytestmark = [pytest.mark.sending, pytest.mark.native]


@pytest.fixture(autouse=True)
def _no_faults() -> Iterator[None]:
    yield
    faults.arm("")


@pytest.mark.parametrize(
    ("before", "after", "calls"),
    [
        ({}, {"idempotencyHeader": "x-id"}, 1),
        ({"idempotencyHeader": "x-id"}, {"idempotencyHeader": "x-other"}, 1),
        ({"idempotencyHeader": "x-id"}, {"idempotencyHeader": "x-id"}, 2),
    ],
)
@pytest.mark.parametrize("settings", [SHORT_CALLS])
async def test_a_call_is_repeated_only_where_the_first_can_be_told_by_its_key(
    post: Post, before: dict[str, str], after: dict[str, str], calls: int
) -> None:
    """A worker dies with a call under way, and whoever runs the credential gives it other fields meanwhile."""
    url = {"url": f"{post.fake.url}/send"}
    credential = await post.credential(rate=5, fields=url | before)
    faults.arm("message.before_record=raise")
    job = await post.job(credential, 1)
    await post.has_calls(1)
    flow = post.rooms.messages.credentials
    known = await flow.require(credential.id)
    await flow.replace_secret(known, url | after, {"signingSecret": SECRET})
    closed = await post.closed(job)
    called = [one for one in await post.called() if one.startswith(job.incarnation)]
    assert len(called) == calls
    expected = MessageState.SENT if calls > 1 else MessageState.UNKNOWN
    assert await post.states(closed) == {expected: 1}


async def test_a_mail_server_that_ends_its_connections_costs_no_attempt(post: Post) -> None:
    server = LeavingServer(b"MAIL", mails=3)
    await post.store.templates.remove_of(post.app.id)
    body = {"subject": "News", "text": "Hi"}
    await post.store.templates.add(
        Template(id="letter", app_id=post.app.id, name="hello", locale="en", body=body, created_at=1)
    )
    async with scripted(server.serve) as address:
        fields = {"host": "127.0.0.1", "port": int(address.rpartition(":")[2]), "tls": "never", "from": "n@example.com"}
        credential = await post.credential(kind="smtp", fields=fields, max_in_flight=2)
        job = await post.job(credential, 30, channel=Channel.MAIL)
        assert (await post.closed(job)).reasons == {}
        entries = await post.entries(job)
    assert {(entry.state, entry.attempt, entry.refused) for entry in entries} == {(MessageState.SENT, 1, 0)}
    assert len(set(server.taken)) == 31 and server.connections > 9
