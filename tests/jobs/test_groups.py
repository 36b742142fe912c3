"""Moves of a group: one mail tells of all its jobs, and is there with the first of them that is moved."""

import uuid

import pytest

from shared.audience.rules.zones import offsets
from shared.core.errors import Unavailable
from shared.core.instants import LATEST
from shared.jobs.feed import Feed
from shared.jobs.moves import GroupFlow, JobFlow
from shared.jobs.rules.events import BY_ITSELF, Doer
from shared.jobs.rules.groups import Group, make_group
from shared.jobs.rules.jobs import Job, JobStatus
from shared.jobs.rules.mails import MailKind
from shared.runtime.clock import SystemClock
from shared.store import Store
from tests.jobs.kinds import KINDS
from tests.jobs.made import a_job
from tests.queues import task_broker

pytestmark = pytest.mark.native

ZONES = ("+0100", "-0300", "rest")
FAR = 10**18 * 4
ANN, BOB, CID = (Doer("user", name) for name in ("ann", "bob", "cid"))


class Dying(JobFlow):
    """Does one move and no other."""

    async def pause(self, job_id: str, *, by: Doer = BY_ITSELF, quietly: bool = False) -> Job | None:
        if quietly:
            raise Unavailable("died")
        return await super().pause(job_id, by=by)


async def flow(store: Store, kind: type[JobFlow] = JobFlow) -> GroupFlow:
    return GroupFlow(store, kind(store, Feed(store, await task_broker(), KINDS), SystemClock(), role="api", mails=True))


async def a_group(store: Store) -> Group:
    asked = a_job(group_id=str(uuid.uuid4()), localized=True)
    group = make_group(asked, [(zone, FAR) for zone in ZONES])
    return (await (await flow(store)).start(group))[0]


async def mails(store: Store, group: Group) -> list[tuple[str, str]]:
    jobs = (await store.jobs.with_ids(group.job_ids)).values()
    return [(mail.kind, mail.by) for job in jobs for mail in job.mails]


async def statuses(store: Store, group: Group) -> list[JobStatus]:
    jobs = await store.jobs.with_ids(group.job_ids)
    return [jobs[job_id].status for job_id in group.job_ids]


async def test_a_group_is_moved_with_one_mail(store: Store) -> None:
    group = await a_group(store)
    groups = await flow(store)

    assert await groups.pause(group, by=ANN) == len(ZONES)
    assert await groups.pause(group, by=BOB) == 0
    assert await groups.stop(group, by=CID) == len(ZONES)

    assert set(await statuses(store, group)) == {JobStatus.STOPPED}
    assert sorted(await mails(store, group)) == [(MailKind.PAUSED, "ann"), (MailKind.STOPPED, "cid")]


async def test_whoever_dies_among_the_moves_leaves_the_mail(store: Store) -> None:
    group = await a_group(store)

    with pytest.raises(Unavailable):
        await (await flow(store, Dying)).pause(group, by=ANN)

    assert (await statuses(store, group)).count(JobStatus.PAUSED) == 1
    assert await mails(store, group) == [(MailKind.PAUSED, "ann")]


async def test_whoever_repeats_an_interrupted_move_tells_nobody_again(store: Store) -> None:
    group = await a_group(store)
    with pytest.raises(Unavailable):
        await (await flow(store, Dying)).pause(group, by=ANN)

    assert await (await flow(store)).pause(group, by=ANN) == len(ZONES) - 1

    assert set(await statuses(store, group)) == {JobStatus.PAUSED}
    assert await mails(store, group) == [(MailKind.PAUSED, "ann")]


async def test_one_mail_tells_that_the_file_of_all_zones_cannot_be_used(store: Store) -> None:
    group = await a_group(store)
    jobs = JobFlow(store, Feed(store, await task_broker(), KINDS), SystemClock(), role="api", mails=True)

    for job in (await store.jobs.with_ids(group.job_ids)).values():
        await jobs.stop_over_file(job, "there is no such file")

    assert set(await statuses(store, group)) == {JobStatus.STOPPED}
    assert await mails(store, group) == [(MailKind.STOPPED, "")]
    plan = await store.files.plan(group.id)
    assert plan is not None
    assert plan.failure == "there is no such file"


async def test_jobs_that_are_moved_already_do_not_keep_the_mail(store: Store) -> None:
    group = await a_group(store)
    jobs = JobFlow(store, Feed(store, await task_broker(), KINDS), SystemClock(), role="api")
    await jobs.stop(group.job_ids[-1])

    assert await (await flow(store)).pause(group, by=ANN) == len(ZONES) - 1
    assert await mails(store, group) == [(MailKind.PAUSED, "ann")]


async def test_the_jobs_are_divided_by_the_offsets_that_the_group_was_made_with(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever completes the group may have another version of the tz database."""
    group = make_group(a_job(group_id=str(uuid.uuid4()), localized=True), [(zone, FAR) for zone in ZONES])
    await store.groups.add(group)
    known = offsets()
    monkeypatch.setattr("shared.audience.rules.zones.offsets", lambda: ("+0100",))
    monkeypatch.setattr("shared.jobs.rules.groups.offsets", lambda: ("+0100",))

    async for unmade in store.groups.find_incomplete(LATEST):
        await (await flow(store)).complete(unmade)

    jobs = await store.jobs.with_ids(group.job_ids)
    assert len(known) > 1
    assert [jobs[job_id].offsets for job_id in group.job_ids] == [known] * len(ZONES)
