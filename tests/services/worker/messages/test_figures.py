"""What workers and schedulers tell of messages at `/metrics`."""

from collections.abc import Mapping
from datetime import timedelta

import pytest

from shared.jobs.rules.jobs import Job
from shared.messages.figures import CredentialGauges
from shared.messages.rules.credentials import Credential, CredentialStatus, SendRetry
from shared.messages.rules.ledger import Message, MessageState, entry_id, write_ahead
from shared.messages.store_ledger import EntryChange
from shared.runtime.metrics import REGISTRY
from tests.providers.rules import Rule
from tests.services.worker.messages.post import Post
from tests.waiting import until

pytestmark = [pytest.mark.sending, pytest.mark.native]


def read(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"carillon_{name}", labels) or 0.0


class Grown:
    """What a counter has grown by since the test looked first."""

    def __init__(self) -> None:
        self._before = self._all()

    def __call__(self, name: str, **labels: str) -> float:
        key = f"carillon_{name}", tuple(sorted(labels.items()))
        return self._all().get(key, 0.0) - self._before.get(key, 0.0)

    def _all(self) -> Mapping[tuple[str, tuple[tuple[str, str], ...]], float]:
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in REGISTRY.collect()
            for sample in family.samples
        }


async def test_calls_are_counted_by_what_they_came_to(post: Post) -> None:
    credential = await post.credential(rate=50, retry=SendRetry(attempts=2, first_delay_seconds=0.1))
    await post.fake.answer(
        Rule(status=400), Rule(status=503), Rule(status=500),
        Rule(status=429, headers={"Retry-After": "3"}),
        always=Rule(status=202),
    )  # fmt: skip
    grown = Grown()
    job = await post.job(credential, 20)
    await post.closed(job)
    calls = {
        outcome: grown("provider_calls_total", kind="http", outcome=outcome)
        for outcome in ("accepted", "refused", "not_now", "too_fast", "login_refused", "unanswered")
    }
    too_fast = calls.pop("too_fast")
    assert calls == {"accepted": 18, "refused": 1, "not_now": 1, "login_refused": 0, "unanswered": 1}
    assert too_fast == grown("accounts_slowed_total") == 1
    assert grown("provider_call_seconds_count", kind="http") == len(await post.called()) == 22
    assert grown("messages_unknown_total", why="no_answer") == 1
    assert grown("grants_total", outcome="granted") >= 1
    assert grown("grants_total", outcome="provider") >= 1
    assert grown("account_places_total", outcome="taken") >= 1
    assert grown("write_ahead_seconds_count") >= 2


async def test_the_clock_is_told_while_somebody_sends(post: Post) -> None:
    credential = await post.credential(rate=10)
    job = await post.job(credential, 200)

    async def is_told() -> bool:
        return 0 < read("account_clock_bound_seconds") <= read("account_clock_allowed_seconds")

    await until(is_told)
    assert read("account_clock_allowed_seconds") == post.servers.settings.providers.clock_ms / 1_000
    await post.hasten(credential)
    await post.closed(job)

    async def is_nothing() -> bool:
        return read("account_clock_bound_seconds") == 0

    await until(is_nothing)


async def test_instants_without_a_permit_are_lost(post: Post) -> None:
    credential = await post.credential(rate=100, max_in_flight=1)
    await post.fake.answer(always=Rule(status=202, delay_seconds=0.3))
    grown = Grown()
    await post.closed(await post.job(credential, 6))
    lost = {why: grown("instants_lost_total", why=why) for why in ("late", "not_ready", "no_permit")}
    assert lost["no_permit"] > 5, lost


async def test_an_account_that_takes_another_clock_is_counted(post: Post) -> None:
    credential = await post.credential(rate=200)
    await post.closed(await post.job(credential, 5))
    grown = Grown()
    credentials = post.store._database["credentials"]
    await credentials.update_one({"_id": credential.id}, {"$set": {"pace.clock": "another"}, "$inc": {"pace.seq": 1}})
    await post.closed(await post.job(credential, 5))
    assert grown("account_clock_adoptions_total") == 1


async def suspended_job(post: Post) -> tuple[Credential, Job]:
    """A job of one message, planned, whose credential sends nothing."""
    credential = await post.credential()
    flow = post.rooms.messages.credentials
    await flow.move(credential, CredentialStatus.SUSPENDED)
    job = await post.job(credential, 1)

    async def is_planned() -> bool:
        found = await post.store.jobs.view(job.key)
        return found is not None and found.plan.end is not None

    await until(is_planned)
    return credential, job


async def activate(post: Post, credential: Credential) -> None:
    messages = post.rooms.messages
    known = await messages.credentials.require(credential.id)
    await messages.credentials.move(known, CredentialStatus.ACTIVE)
    await messages.feed.feed_credential(credential.id)


async def test_what_a_dead_worker_left_open_is_counted_as_unknown(post: Post) -> None:
    credential, job = await suspended_job(post)
    message = Message(
        id=entry_id(job.incarnation, 0, 0), app_id=job.app_id, credential_id=credential.id, to="r0@example.com"
    )
    until = await post.store.now() - timedelta(seconds=1)
    left = write_ahead(message, owner="dead", until=until)
    await post.store.messages.fold([EntryChange(None, left)])
    grown = Grown()
    await activate(post, credential)
    await post.closed(job)
    assert await post.states(job) == {MessageState.UNKNOWN: 1}
    assert grown("messages_unknown_total", why="lost_worker") == 1
    assert await post.called() == []


async def test_a_credential_in_the_way_of_jobs_is_told_until_it_sends(post: Post) -> None:
    idle = await post.credential()
    flow = post.rooms.messages.credentials
    await flow.move(idle, CredentialStatus.SUSPENDED)
    gauges = CredentialGauges(post.store)

    async def told() -> dict[str, float]:
        await gauges.read_once()
        return {status: read("credentials_blocked", status=status) for status in ("rejected", "suspended")}

    assert await told() == {"rejected": 0, "suspended": 0}
    credential, job = await suspended_job(post)
    assert await told() == {"rejected": 0, "suspended": 1}
    await activate(post, credential)
    await post.closed(job)
    assert await told() == {"rejected": 0, "suspended": 0}
    await post.fake.answer(always=Rule(status=401))
    await post.job(credential, 5)

    async def is_rejected() -> bool:
        return await told() == {"rejected": 1, "suspended": 0}

    await until(is_rejected)
