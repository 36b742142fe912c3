"""The limits of a new schedule: how many its namespace may have, how often it may recur, and the rules of its job."""

import asyncio
import time
from collections.abc import Sequence

from cachetools import LRUCache
from msgspec import Struct

from services.api.jobs.job_draft import JobDrafts
from shared.accounts.rules.apps import Role
from shared.accounts.rules.callers import Caller
from shared.clock.rules.callbacks import Callback, JobCallback
from shared.clock.rules.recurrence import Every
from shared.clock.rules.schedules import calendar_ids, has_content
from shared.clock.schedules import Wanted
from shared.core.errors import Conflict, Forbidden, Invalid, Refused, Unavailable
from shared.runtime.settings import ApiSettings
from shared.store import Store

_NAMESPACES = 10_000
_WAIT_SECONDS = 0.5
_FRESH_SECONDS = 60.0
_FULL_SECONDS = 1.0
# A count that took long is made rarely: counting takes this part of the time at most.
_COUNTING_SHARE = 0.05
_DATA = "callback.data"
_APP_ID = f"{_DATA}.app_id"


class _Count(Struct):
    """The unfinished schedules of a namespace: `counted` at the time `at`, and `added` by this process since."""

    counting: "asyncio.Task[None] | None" = None
    counted: int = 0
    added: int = 0
    at: float = float("-inf")
    took: float = 0.0


class ScheduleLimits:
    """Judges new schedules.

    A process counts the unfinished schedules of a namespace now and then, and adds those that it accepts in between. A
    count that takes long goes on in the background; before the first one, no schedule is refused for the number. So
    several processes together may exceed the limit by the schedules that they accept between two counts.
    """

    def __init__(self, store: Store, drafts: JobDrafts, settings: ApiSettings) -> None:
        self._store = store
        self._drafts = drafts
        self._pending = settings.pending_schedules
        self._least_every = settings.least_every_seconds
        self._counts: LRUCache[str, _Count] = LRUCache(_NAMESPACES)

    async def judge(self, wanted: Sequence[Wanted], maker: Caller) -> dict[str, Refused]:
        """The refusals by id; all are of the maker's namespace. A schedule that exists does not count anew."""
        refused: dict[str, Refused] = {
            each.id: refusal for each in wanted if (refusal := self._too_often(each)) is not None
        }
        refused |= await self._judge_jobs(wanted, maker)
        refused |= await self.judge_calendars(wanted)
        others = [each for each in wanted if each.id not in refused]
        return refused | (await self._judge_number(others) if others else {})

    async def judge_calendars(self, wanted: Sequence[Wanted]) -> dict[str, Invalid]:
        """The refusals, by id, of schedules that exclude a calendar which is not there."""
        excluded = [
            (each, calendar_id, f"exclude[{index}]", each.definition.exclude[index])
            for each in wanted
            if each.definition.exclude
            for index, calendar_id in enumerate(calendar_ids(each.namespace, each.definition))
        ]
        found = await self._store.calendars.many([id_ for _, id_, *_ in excluded]) if excluded else {}
        return {
            each.id: Invalid("you have no calendar with this name", field=field, value=name)
            for each, calendar_id, field, name in reversed(excluded)
            if calendar_id not in found
        }

    async def _judge_jobs(self, wanted: Sequence[Wanted], maker: Caller) -> dict[str, Refused]:
        jobs = [(each, job) for each in wanted if isinstance(job := each.definition.callback, JobCallback)]
        there = await self._store.schedules.many([each.id for each, _ in jobs], whole=True) if jobs else {}
        # The same request again changes nothing, so it is not judged again.
        fresh = [
            (each.id, job)
            for each, job in jobs
            if each.id not in there or not has_content(there[each.id], each.definition)
        ]
        judged = {job: await self.judge_job(job, maker) for job in {job for _, job in fresh}}
        return {id: refusal for id, job in fresh if (refusal := judged[job]) is not None}

    async def judge_job(self, callback: Callback, maker: Caller) -> Refused | None:
        """The refusal of a job that the maker could not make now; `None` for other callbacks."""
        if not isinstance(callback, JobCallback):
            return None
        role = maker.role_over_app(callback.app_id)
        if role is None or not role.covers(Role.OPERATOR):
            return Forbidden("you need the role operator for this app", field=_APP_ID, value=callback.app_id)
        app = await self._store.apps.get(callback.app_id)
        if app is None or app.deleting:
            return Invalid("there is no app with this id", field=_APP_ID, value=callback.app_id)
        try:
            await self._drafts.draft_due(callback, app, maker.name)
        except Refused as refusal:
            field = refusal.field or ""
            place = f"{_DATA}.template" if field == "template" else f"{_DATA}.payload.{field}".removesuffix(".")
            return Invalid(refusal.reason, field=place, value=refusal.value)
        return None

    def _too_often(self, wanted: Wanted) -> Invalid | None:
        recurrence = wanted.definition.recurrence
        if not isinstance(recurrence, Every) or recurrence.seconds >= self._least_every:
            return None
        reason = f"every is at least {self._least_every} seconds in this deployment"
        return Invalid(reason, field="every", value=recurrence.seconds)

    async def _judge_number(self, wanted: Sequence[Wanted]) -> dict[str, Refused]:
        count = await self._count(wanted[0].namespace, len(wanted))
        room = max(self._pending - count.counted - count.added, 0)
        if room >= len(wanted):
            count.added += len(wanted)
            return {}
        there = await self._store.schedules.many([each.id for each in wanted])
        fresh = list(dict.fromkeys(each.id for each in wanted if each.id not in there))
        count.added += min(len(fresh), room)
        reason = f"{self._pending:,} unfinished schedules are all that a namespace may have"
        return {id: Conflict(reason, field="key") for id in fresh[room:]}

    async def _count(self, namespace: str, more: int) -> _Count:
        """The count, read again if it is old, or if it is not fresh and there seems to be no room."""
        count = self._counts[namespace] = self._counts.get(namespace) or _Count()
        full = count.counted + count.added + more > self._pending
        fresh = max(_FULL_SECONDS if full else _FRESH_SECONDS, count.took / _COUNTING_SHARE)
        if count.counting is None and time.monotonic() >= count.at + fresh:
            count.counting = asyncio.create_task(self._look(namespace, count))
        if count.counting is not None:
            await asyncio.wait({count.counting}, timeout=_WAIT_SECONDS)
        return count

    async def _look(self, namespace: str, count: _Count) -> None:
        began = time.monotonic()
        added = count.added
        try:
            count.counted = await self._store.schedules.count_pending(namespace)
            count.added -= added
        except Unavailable:
            pass  # the request stores its schedules in the same store, and fails there
        finally:
            count.at = time.monotonic()
            count.took = count.at - began
            count.counting = None
