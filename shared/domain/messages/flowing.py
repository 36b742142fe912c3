"""The standing of a credential at a moment: its rate, its limit, and its queue."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from shared.domain.instants import from_ms, ms
from shared.domain.messages.credentials import Traffic
from shared.domain.messages.pacing import Limit, effective_rate
from shared.domain.messages.places import drop_expired

_QUIET_US = 2_000_000


class WaitingJob(Struct, frozen=True):
    """An open job of a credential: `since` when it may send, and whether it `runs`."""

    key: str
    since: datetime
    runs: bool


class CredentialQueue(Struct, frozen=True, kw_only=True):
    """The queue of a credential: its open `jobs` and their uncalled `messages`. The `held` ones belong to jobs that do
    not run now. The oldest of the others has waited since `oldest`."""

    jobs: int = 0
    messages: int = 0
    held: int = 0
    oldest: datetime | None = None


class CredentialStanding(Struct, frozen=True, kw_only=True):
    """The standing of a credential. `limited_by` is `None` if it sends nothing; `hold_until` is `None` without a pause
    of the provider's."""

    effective_rate: float
    limited_by: Limit | None
    hold_until: datetime | None
    queue: CredentialQueue


def queue_of(jobs: Sequence[WaitingJob], unsent: Mapping[str, int]) -> CredentialQueue:
    left = {job.key: unsent.get(job.key, 0) for job in jobs}
    return CredentialQueue(
        jobs=len(jobs),
        messages=sum(left.values()),
        held=sum(left[job.key] for job in jobs if not job.runs),
        oldest=min((job.since for job in jobs if job.runs and left[job.key]), default=None),
    )


def standing_at(traffic: Traffic, queue: CredentialQueue, now: datetime) -> CredentialStanding:
    now_us, hold = ms(now) * 1_000, from_ms(-(-traffic.pace.hold_until_us // 1_000))
    return CredentialStanding(
        effective_rate=effective_rate(traffic.pace, traffic.rate, now_us) if traffic.flows else 0.0,
        limited_by=_limit_at(traffic, queue, now_us) if traffic.flows else None,
        hold_until=hold if hold > now else None,
        queue=queue,
    )


def _limit_at(traffic: Traffic, queue: CredentialQueue, now_us: int) -> Limit:
    """The present limit. The limits that workers report count while their places do."""
    if queue.messages == queue.held:
        return Limit.WORK
    pace, told = traffic.pace, {place.limit for place in drop_expired(traffic.places, now_us)}
    if Limit.CLOCK in told or pace.free_us > now_us:
        return Limit.CLOCK
    if pace.hold_until_us > now_us or pace.share_at(now_us) < 1:
        return Limit.PROVIDER
    if Limit.IN_FLIGHT in told:
        return Limit.IN_FLIGHT
    interval_us = int(1_000_000 / traffic.rate)
    if told == {Limit.WORK} or pace.last_us + interval_us + _QUIET_US < now_us:
        return Limit.WORK
    return Limit.RATE
