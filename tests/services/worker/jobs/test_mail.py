"""Mails of jobs that have an incarnation, as all new ones do: they are sent once, or given up, and then forgotten."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from services.worker.jobs.finish import Mailer
from shared.core.instants import LATEST, from_ms
from shared.jobs.feed import Feed
from shared.jobs.rules.events import DueMail
from shared.jobs.rules.jobs import Job, SendMail
from shared.jobs.rules.mails import Mailing
from shared.providers.mail import Mail
from shared.store import Store
from shared.time import DatabaseTime
from tests.jobs.kinds import KINDS
from tests.jobs.made import a_job
from tests.queues import task_broker

DUE = DueMail("created", 7)
LATER = DueMail("stopped", 8)


@pytest.fixture
async def mailer(store: Store) -> Mailer:
    feed = Feed(store, await task_broker(), KINDS)
    mailing = Mailing(domain="example.com", addressees=(), blacklist=(), host="here")
    return Mailer(store, Mail(), feed, DatabaseTime(store), mailing, lease=timedelta(seconds=10))


async def a_job_with(store: Store, *mails: DueMail) -> Job:
    job = a_job(incarnation="first", mails=mails)
    await store.jobs.add(job)
    return job


async def due(store: Store, job: Job) -> tuple[DueMail, ...]:
    found = await store.jobs.view(job.id)
    assert found is not None
    return found.mails


async def waiting(store: Store) -> list[str]:
    return [key async for key in store.mails.find_waiting(LATEST)]


async def test_a_mail_that_is_given_up_is_forgotten(store: Store, mailer: Mailer) -> None:
    job = await a_job_with(store, DUE, LATER)
    await mailer.give_up(SendMail(job.key, DUE.kind, DUE.at), "no")
    assert await due(store, job) == (LATER,)
    assert await waiting(store) == [job.key]
    await mailer.run(SendMail(job.key, LATER.kind, LATER.at))
    assert await due(store, job) == ()
    assert await waiting(store) == []


async def test_a_mail_is_leased_by_its_jobs_key_and_no_other_jobs(store: Store) -> None:
    job, now = await a_job_with(store, DUE), await store.now()
    other = replace(job, incarnation="second")
    until = now + timedelta(minutes=1)
    assert not await store.mails.lease(other.key, DUE, "t", now=now, until=until)
    assert await store.mails.lease(job.key, DUE, "t", now=now, until=until)
    await store.mails.release(other.key, "t")
    assert not await store.mails.lease(job.key, DUE, "u", now=now, until=until)
    await store.mails.release(job.key, "t")
    assert await store.mails.lease(job.key, DUE, "u", now=now, until=until)
    await store.mails.note_sent(other.key, DUE)
    await store.mails.touch(other.key, now)
    assert [key async for key in store.mails.find_waiting(from_ms(1))] == [job.key]
    assert await due(store, job) == (DUE,)
