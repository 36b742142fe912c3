"""Workers: one stage for each queue, and mails of the bus and of accounts."""

import asyncio
import os
import socket
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any

from services.wiring.rooms import Rooms
from services.worker.bus.deliver import DeliveringTools, DeliverQueues, DeliverSlowQueues, ReplayRunner
from services.worker.bus.held_queue import BYTES_IN_HAND
from services.worker.clock.call import WorkerCallbacks
from services.worker.clock.places import FairCalls, Places
from services.worker.clock.start import JobDrafting, JobStarts
from services.worker.console.bulk import BulkRunner
from services.worker.consumer import Stage, Workers
from services.worker.jobs.dividing import Cuts
from services.worker.jobs.finish import Finisher, Grace, Mailer
from services.worker.jobs.plan import PlanInputs, Planner
from services.worker.messages.opening import Dispatches, OpenAccounts, SendRules
from services.worker.messages.pace import KeptClock
from services.worker.messages.rows import Mailings, RowsReader
from services.worker.messages.send import MessageSender
from services.worker.messages.singles import SingleSender
from services.worker.push.recipients import RecipientReader
from services.worker.push.send import Sender
from shared.bus.outbox import MAIL_SECONDS, NoticeMails
from shared.drivers.http import Outgoing
from shared.jobs.finish import Finish
from shared.jobs.rules.mails import Mailing
from shared.messages.clock import AccountClock
from shared.messages.halting import INTERVAL_SECONDS, RejectionMails
from shared.messages.rules.pacing import PaceGuard
from shared.runtime.fair_budget import FairBudget
from shared.runtime.lifecycle import Closing, Component
from shared.runtime.loops import Periodic

# The calls that may wait in a worker for a place, so that none waits in the queue behind those of another caller.
_WAITING_PER_PLACE = 4


def worker_components(rooms: Rooms) -> list[Component]:
    servers = rooms.servers
    stages = build_stages(rooms)
    verify = partial(servers.verify, queues_of(stages), rooms.bus.stream_topics)
    name = f"{socket.gethostname()}/{os.getpid()}"
    return [
        Workers(servers.broker, stages, name=name, verify=verify),
        Closing("wake-ups due soon", rooms.bus.waker.close),
        *_mails(rooms),
    ]


def queues_of(stages: Sequence[Stage[Any]]) -> tuple[str, ...]:
    return tuple(stage.task.queue for stage in stages)


def build_stages(rooms: Rooms) -> list[Stage[Any]]:
    """All stages of a worker. They belong to this worker, and end with it."""
    servers = rooms.servers
    grace = Grace(servers.store, servers.clock, seconds=servers.settings.worker.grace_seconds)
    return [
        *bus_stages(rooms),
        _calls(rooms),
        BulkRunner(rooms.console.bulk),
        _planner(rooms, grace),
        _finisher(rooms),
        Mailer(
            servers.store,
            servers.mail,
            rooms.jobs.feed,
            servers.time,
            _mail_rules(rooms),
            lease=_mail_lease(rooms),
        ),
        *_messages(rooms, grace),
        _push(rooms, grace),
    ]


def bus_stages(rooms: Rooms) -> Sequence[Stage[Any]]:
    """Healthy receivers, slow or failing ones, and replays."""
    servers = rooms.servers
    chosen, for_slow = servers.settings.bus, BYTES_IN_HAND // 4
    well = max(chosen.calls_in_flight - chosen.slow_calls_in_flight, 1)

    def tools(outgoing: Outgoing, bytes_in_hand: int) -> DeliveringTools:
        return DeliveringTools(
            store=servers.store,
            time=servers.time,
            waker=rooms.bus.waker,
            outgoing=outgoing,
            ring=servers.key_ring,
            subscribing=rooms.bus.subscribing,
            care=rooms.bus.care,
            call_seconds=chosen.call_seconds,
            ahead=servers.settings.scheduler.lookahead_seconds,
            budget=FairBudget(bytes_in_hand),
        )

    return (
        DeliverQueues(tools(servers.bus_outgoing, BYTES_IN_HAND - for_slow), in_flight=well),
        DeliverSlowQueues(tools(servers.slow_bus_outgoing, for_slow), in_flight=chosen.slow_calls_in_flight),
        ReplayRunner(rooms.bus.replaying),
    )


def _calls(rooms: Rooms) -> FairCalls:
    chosen = rooms.servers.settings.callbacks
    waiting = _WAITING_PER_PLACE * chosen.calls_in_flight
    places = Places(at_once=chosen.calls_in_flight, per_host=chosen.calls_per_host, waiting=waiting)
    return FairCalls(worker_callbacks(rooms), places)


def worker_callbacks(rooms: Rooms) -> WorkerCallbacks:
    servers, settings = rooms.servers, rooms.servers.settings
    seconds = settings.callbacks.call_timeout_seconds + settings.scheduler.lookahead_seconds
    return WorkerCallbacks(
        servers.store,
        servers.time,
        servers.outgoing,
        _job_starts(rooms),
        rooms.clock.settlement,
        call_timeout=timedelta(seconds=seconds),
        signing=rooms.accounts.signing,
    )


def _job_starts(rooms: Rooms) -> JobStarts:
    servers = rooms.servers
    drafting: JobDrafting | None = None

    async def load() -> JobDrafting:
        nonlocal drafting
        if drafting is None:
            # The API's module brings Litestar along: the import takes a second, and other work goes on.
            api = await asyncio.to_thread(import_module, "services.wiring.api")
            drafting = api.job_drafts(rooms, api.account_jobs(rooms))
        return drafting

    seconds = servers.settings.callbacks.call_timeout_seconds
    return JobStarts(servers.store, servers.time, rooms.jobs.flow, load, seconds=seconds)


def _planner(rooms: Rooms, grace: Grace) -> Planner:
    servers = rooms.servers
    store, jobs, worker = servers.store, rooms.jobs, servers.settings.worker
    inputs = PlanInputs(
        store,
        servers.audience,
        servers.blobs,
        jobs.kinds,
        servers.clock,
        batch_size=worker.batch_size,
        max_file_bytes=servers.settings.blobs.max_file_bytes,
    )
    return Planner(
        store,
        inputs,
        Cuts(store, servers.audience, servers.blobs, worker),
        jobs.feed,
        jobs.flow,
        jobs.breaker,
        grace,
        servers.clock,
        in_flight=worker.plans_in_flight,
    )


def _finisher(rooms: Rooms) -> Finisher:
    servers = rooms.servers
    jobs = rooms.jobs
    finish = Finish(servers.store, jobs.kinds, jobs.breaker, servers.clock, role=servers.service, mails=jobs.has_mails)
    return Finisher(finish, jobs.feed, in_flight=servers.settings.worker.plans_in_flight)


def _messages(rooms: Rooms, grace: Grace) -> Sequence[Stage[Any]]:
    """Single messages, and the batches of jobs."""
    servers = rooms.servers
    store, jobs, messages, chosen = servers.store, rooms.jobs, rooms.messages, servers.settings.providers
    guard = PaceGuard(
        late_us=1_000 * chosen.late_ms, clock_us=1_000 * chosen.clock_ms, network_us=1_000 * chosen.network_ms
    )
    rules = SendRules(guard=guard, call_seconds=chosen.call_seconds)
    kept_clock = KeptClock(AccountClock(store), allowed_us=guard.clock_us)
    dispatches = Dispatches(store, OpenAccounts(messages.credentials.open), kept_clock, rules)
    return (
        SingleSender(store, dispatches, messages.credentials, messages.feed, messages.singles),
        MessageSender(
            store,
            Mailings(store, messages.tables),
            RowsReader(messages.tables, servers.blobs),
            dispatches,
            messages.credentials,
            messages.links,
            messages.feed,
            jobs.feed,
            jobs.flow,
            messages.bounces,
            grace,
            servers.clock,
            in_flight=chosen.batches_in_flight,
        ),
    )


def _push(rooms: Rooms, grace: Grace) -> Sender:
    servers = rooms.servers
    worker = servers.settings.worker
    return Sender(
        servers.store,
        RecipientReader(servers.store, servers.audience, servers.blobs, batch_size=worker.batch_size),
        servers.stream,
        rooms.jobs.feed,
        rooms.jobs.flow,
        rooms.jobs.breaker,
        grace,
        servers.clock,
        worker=worker,
        stream_settings=servers.settings.stream,
        rules=rooms.push.record_rules,
    )


def _mails(rooms: Rooms) -> list[Component]:
    """Mails about subscriptions and accounts, if there is a mail server."""
    servers = rooms.servers
    if not servers.mail.delivers:
        return []
    store, mail, mailing, lease = servers.store, servers.mail, _mail_rules(rooms), _mail_lease(rooms)
    notices = NoticeMails(store, mail, servers.time, mailing, lease=lease)
    rejections = RejectionMails(store, mail, mailing, lease=lease)
    return [
        Periodic("mails about subscriptions", notices.run_once, interval_seconds=MAIL_SECONDS),
        Periodic("mails about credentials", rejections.run_once, interval_seconds=INTERVAL_SECONDS),
    ]


def _mail_rules(rooms: Rooms) -> Mailing:
    chosen = rooms.servers.settings.mail
    return Mailing(
        domain=chosen.message_id_domain or chosen.sender_address.rpartition("@")[2],
        addressees=chosen.addressees,
        blacklist=chosen.blacklist,
        host=socket.gethostname(),
        platforms=rooms.jobs.kinds.services,
    )


def _mail_lease(rooms: Rooms) -> timedelta:
    """Longer than any attempt: otherwise a mail on its way would be sent again."""
    return timedelta(seconds=2 * rooms.servers.settings.mail.timeout_seconds)
