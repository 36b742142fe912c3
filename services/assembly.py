"""The services: each is made of components, and these of the capabilities that `services.compose` opens."""

import os
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from services.api import app as api_app
from services.compose import Capabilities
from services.feedback.listener import Listener
from services.scheduler.clock import Clock as TickingClock
from services.scheduler.clock import answer_seconds, lookahead
from services.scheduler.deliver import Deliveries
from services.scheduler.fire import Fire
from services.scheduler.in_hand import InHand
from services.scheduler.retention import Retention, retention
from services.scheduler.sweep import Sweep, sweeping
from services.scheduler.upkeep import upkeep
from services.worker.clock.call import Caller
from services.worker.clock.places import FairCalls, Places
from services.worker.consumer import Consumer
from services.worker.jobs.finish import Finisher
from services.worker.jobs.grace import Grace
from services.worker.jobs.mail import Mailer
from services.worker.jobs.plan import Planner
from services.worker.push.recipients import Reader
from services.worker.push.send import Sender
from services.worker.service import Workers
from shared.domain.errors import Invalid
from shared.domain.jobs.mails import Mailing
from shared.domain.tasks import BATCH_QUEUE, CALL_QUEUE, FINISH_QUEUE, MAIL_QUEUE, SPLIT_QUEUE
from shared.flow.jobs.finish import Finish
from shared.flow.jobs.upkeep import Lost, Patience
from shared.runtime.health import Health
from shared.runtime.http_protocol import Limits
from shared.runtime.lifecycle import Closing, Component
from shared.runtime.loops import Periodic, Swept
from shared.runtime.serving import HttpServer, affordable_connections

# Work whose queue is busy counts as lost after so many times the usual patience.
_AT_LATEST = 10
_MAILS_IN_FLIGHT = 2
# How many calls may wait in a worker for a place, so that none waits in the queue behind those of another caller.
_WAITING_PER_PLACE = 4

SERVICES = ("api", "scheduler", "worker", "feedback")


def components(service: str, with_: Capabilities) -> list[Component]:
    """The components of one service, in the order in which they start."""
    match service:
        case "api":
            return [_api(with_)]
        case "scheduler":
            return [_clock(with_), _upkeep(with_), _sweep(with_), _revocations(with_), _retention(with_)]
        case "worker":
            return [_workers(with_)]
        case "feedback":
            return [Listener(with_.stream, with_.store, with_.settings.feedback)]
        case _:
            raise Invalid(f"one of {', '.join(SERVICES)}", field="service")


async def take_up(with_: Capabilities) -> None:
    """Queue all unfinished work again at once. Only for the start of a store's only process, whose broker begins empty:
    nobody is at work, so no patience is needed. Raises `Unavailable`."""
    none = timedelta(0)
    await _lost(with_, Patience(none, none, none)).find()


def closing(with_: Capabilities) -> Component:
    """The component that closes the connections when all others have stopped."""
    return Closing("connections", with_.close)


def watch(services: Sequence[str], with_: Capabilities, health: Health) -> None:
    """Make readiness depend on the servers that these services use."""
    health.add("mongodb", with_.store.ping)
    if set(services) & {"api", "scheduler", "worker"}:
        health.add("broker", with_.broker.ping)
    if set(services) & {"worker", "feedback"}:
        health.add("stream", with_.stream.ping)
    if set(services) & {"api", "worker"}:
        health.add("push database", with_.audience.ping)


def _api(with_: Capabilities) -> HttpServer:
    settings = with_.settings.api
    application = api_app.create(
        store=with_.store,
        audience=with_.audience,
        blobs=with_.blobs,
        flow=with_.jobs,
        groups=with_.groups,
        mails=with_.mails,
        uploads=with_.uploads,
        files=with_.settings.blobs,
        schedules=with_.schedules,
        targets=with_.targets,
        clock=with_.clock,
        settings=settings,
        worker=with_.settings.worker,
        stream=with_.settings.stream,
        signing=with_.signing,
    )
    return _ApiServer(application, with_)


class _ApiServer(HttpServer):
    """The API, which tells this process where it listens, so that callbacks do not call it."""

    def __init__(self, application: Any, with_: Capabilities) -> None:
        settings = with_.settings.api
        limits = Limits(connections=affordable_connections(settings.max_connections))
        super().__init__("api", application, host=settings.host, port=settings.port, limits=limits, proxy_headers=False)
        self._own_api = with_.own_api

    async def start(self) -> None:
        await super().start()
        self._own_api.port = self.port


def _upkeep(with_: Capabilities) -> Component:
    scheduler, stream = with_.settings.scheduler, with_.settings.stream
    stale = timedelta(seconds=scheduler.stale_seconds)
    patience = Patience(
        owned=timedelta(seconds=stream.transaction_timeout_seconds + scheduler.margin_seconds),
        queued=stale,
        at_latest=_AT_LATEST * stale,
    )
    return upkeep(_lost(with_, patience), interval_seconds=scheduler.upkeep_seconds)


def _lost(with_: Capabilities, patience: Patience) -> Lost:
    return Lost(with_.store, with_.broker, with_.feed, with_.jobs, with_.groups, with_.breaker, patience)


def _clock(with_: Capabilities) -> Component:
    settings = with_.settings.scheduler
    call_lease = timedelta(seconds=settings.call_lease_seconds) + lookahead(settings)
    deliveries = Deliveries(
        with_.store,
        with_.broker,
        with_.stream,
        with_.settlement,
        call_lease=call_lease,
        waiting_calls=settings.waiting_calls,
        in_hand=InHand(with_.store, most=settings.calls_per_namespace, lease_seconds=call_lease.total_seconds()),
    )
    fire = Fire(
        with_.store,
        with_.time,
        deliveries,
        with_.settlement,
        with_.feed,
        with_.jobs,
        tick=timedelta(seconds=settings.tick_seconds),
        misfire_after=timedelta(seconds=settings.misfire_after_seconds),
        stages_seconds=answer_seconds(settings),
    )
    return TickingClock(with_.store, with_.time, fire, settings)


def _sweep(with_: Capabilities) -> Component:
    sweep = Sweep(with_.store, with_.time)
    return sweeping(sweep, interval_seconds=with_.settings.scheduler.sweep_seconds)


def _revocations(with_: Capabilities) -> Component:
    """Goes on with revocations that a dead process left, and pauses what requests in flight scheduled after one."""

    async def run_once() -> Swept:
        return Swept(discarded=await with_.revocations.complete_all())

    return Periodic("revocations", run_once, interval_seconds=with_.settings.scheduler.sweep_seconds)


def _retention(with_: Capabilities) -> Component:
    settings = with_.settings.scheduler
    return retention(Retention(with_.store, with_.time, settings), interval_seconds=settings.retention_seconds)


def _workers(with_: Capabilities) -> Workers:
    worker, at_once = with_.settings.worker, with_.settings.callbacks.calls_in_flight
    calls = _calls(with_)
    grace = Grace(with_.store, with_.clock, seconds=worker.grace_seconds)
    planner = Planner(
        with_.store,
        with_.audience,
        with_.blobs,
        with_.stream,
        with_.feed,
        with_.jobs,
        with_.breaker,
        grace,
        with_.clock,
        worker=worker,
        topics=with_.settings.stream,
        max_file_bytes=with_.settings.blobs.max_file_bytes,
    )
    sender = Sender(
        with_.store,
        Reader(with_.store, with_.audience, with_.blobs, batch_size=worker.batch_size),
        with_.stream,
        with_.feed,
        with_.jobs,
        with_.breaker,
        grace,
        with_.clock,
        worker=worker,
        records=with_.settings.stream,
    )
    finish = Finish(
        with_.store,
        with_.blobs,
        with_.breaker,
        with_.clock,
        control_group_folder=with_.settings.blobs.control_group_folder,
        mails=with_.mails,
    )
    finisher = Finisher(finish, with_.feed)
    name = f"{socket.gethostname()}/{os.getpid()}"
    consumers = [
        Consumer(with_.broker, BATCH_QUEUE, sender, name=name, in_flight=worker.sends_in_flight),
        Consumer(with_.broker, SPLIT_QUEUE, planner, name=name, in_flight=worker.plans_in_flight),
        Consumer(with_.broker, FINISH_QUEUE, finisher, name=name, in_flight=worker.plans_in_flight),
        Consumer(with_.broker, MAIL_QUEUE, _mailer(with_), name=name, in_flight=_MAILS_IN_FLIGHT),
        Consumer(with_.broker, CALL_QUEUE, calls, name=name, in_flight=(1 + _WAITING_PER_PLACE) * at_once),
    ]
    return Workers(consumers, planner, calls, verify=with_.verify)


def _mailer(with_: Capabilities) -> Mailer:
    chosen = with_.settings.mail
    mailing = Mailing(
        domain=chosen.message_id_domain or chosen.sender_address.rpartition("@")[2],
        addressees=chosen.addressees,
        blacklist=chosen.blacklist,
        host=socket.gethostname(),
    )
    # No attempt may outlive its lease: a mail that is on its way would be sent once more.
    lease = timedelta(seconds=2 * chosen.timeout_seconds)
    return Mailer(with_.store, with_.mail, with_.feed, with_.jobs, with_.time, mailing, lease=lease)


def _calls(with_: Capabilities) -> FairCalls:
    chosen = with_.settings.callbacks
    waiting = _WAITING_PER_PLACE * chosen.calls_in_flight
    return FairCalls(
        _caller(with_), Places(at_once=chosen.calls_in_flight, per_host=chosen.calls_per_host, waiting=waiting)
    )


def _caller(with_: Capabilities) -> Caller:
    chosen = with_.settings.callbacks
    return Caller(
        with_.store,
        with_.time,
        with_.outgoing,
        with_.settlement,
        call_timeout=timedelta(seconds=chosen.call_timeout_seconds) + lookahead(with_.settings.scheduler),
        signing=with_.signing,
    )
