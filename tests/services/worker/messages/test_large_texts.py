"""Jobs whose texts are large: a worker has a few of them in memory at a time."""

import asyncio
import re
from pathlib import Path

import pytest

from shared.jobs.rules.templates import Template
from shared.messages.rules.ledger import MessageState
from tests.services.worker.messages.post import Post

pytestmark = [pytest.mark.sending, pytest.mark.native]

MEGABYTE = 1_000_000
PAGE = 900_000


async def write_page(post: Post, text: str) -> None:
    """What the app's messages say."""
    await post.store.templates.remove_of(post.app.id)
    page = Template(id="page", app_id=post.app.id, name="hello", locale="en", body={"text": text}, created_at=1)
    await post.store.templates.add(page)


def memory_peak() -> int:
    """The most memory that this process has had since `forget_peak`, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


@pytest.mark.alone
async def test_a_thousand_large_messages_fit_a_small_worker(post: Post) -> None:
    await write_page(post, "{{name}}" + "x" * PAGE)
    credential = await post.credential(rate=50, max_in_flight=20)
    forget_peak()
    base = memory_peak()
    job = await post.job(credential, 1_000, batch_size=1_000)
    await post.has_calls(5)
    longest = 0.0
    loop = asyncio.get_running_loop()
    for _ in range(100):
        began = loop.time()
        await asyncio.sleep(0.01)
        longest = max(longest, loop.time() - began)
    grown = memory_peak() - base
    assert (await post.store.batches.get(job.key, 0)).size == 1_000
    assert grown < 400 * MEGABYTE, f"{grown / MEGABYTE:.0f} MB more"
    assert longest < 5, "everything else waited meanwhile"


async def test_each_gets_its_own_text_however_many_are_made_together(post: Post) -> None:
    await write_page(post, "{{name}}" + "x" * 3_000)
    job = await post.job(await post.credential(), 300, batch_size=300)
    await post.closed(job)
    entries = await post.entries(job)
    assert {entry.state for entry in entries} == {MessageState.SENT}
    arrived = {one.headers["carillon-message"].partition("~")[0]: one.body for one in (await post.fake.tell()).arrived}
    assert [arrived[entry.id] for entry in entries] == [f'{{"text":"n{row}{"x" * 3_000}"}}' for row in range(300)]


async def test_a_text_that_is_too_large_is_told_and_the_others_are_sent(post: Post) -> None:
    await write_page(post, "x" * 1_000_000 + "{{name}}" * 20_000)
    job = await post.job(await post.credential(), 14, batch_size=14)  # from n10 on it has over 1,048,576 characters
    closed = await post.closed(job)
    assert closed.totals is not None
    assert (closed.totals.sent, closed.totals.skipped) == (10, 4)
    assert closed.reasons == {"unrendered": 4}


async def test_a_text_that_takes_longer_to_make_than_an_instant_lasts_is_sent(post: Post) -> None:
    await write_page(post, "{{name}}" * 150_000)
    job = await post.job(await post.credential(), 5)
    await post.closed(job)
    assert await post.states(job) == {MessageState.SENT: 5}
