"""Retention of messages. Some days after the end of their job messages lose their recipients; long after it they are
removed with their batches, and the job keeps the counts.

    redact some batches ──> note the progress        begin ──> move counts of batches to the job, remove the batches
      ^                       │                                  ^                          │
      └───────────────────────┘                                  └──────────────────────────┘ ──> plans ──> end

Each step is bounded, safe to repeat, and several processes may do it at a time. The progress is stored in the job,
so after a death another process continues there.

All messages to one person can be redacted at once, and the data of a deleted app is removed.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import structlog

from shared.accounts.removal import Belongings
from shared.core.errors import Conflict, Invalid, Unavailable
from shared.jobs.retention import JobRemains
from shared.messages.rules.credentials import CREDENTIALS_OF_AN_APP, Credential
from shared.messages.rules.jobs import options_of
from shared.messages.rules.recipients import ADDRESS_CHARACTERS, spellings_of
from shared.messages.store_kept_ledgers import KeptJob
from shared.runtime.faults import fault
from shared.runtime.loops import Swept, repeat
from shared.runtime.server_settings import ProviderSettings
from shared.store import Store
from shared.time import DatabaseTime

log = structlog.get_logger(__name__)
_JOBS = 20
_ROWS = 1_000
_STEPS = 200


class MessageRetention:
    """Redacts and removes old messages. `settings` gives the ages."""

    def __init__(self, store: Store, time: DatabaseTime, settings: ProviderSettings) -> None:
        self._store = store
        self._time = time
        self._remains = JobRemains(store)
        self._redacted_after = timedelta(days=settings.redact_days)
        self._forgotten_after = timedelta(days=settings.ledger_days)

    async def run_once(self) -> Swept:
        now, store = await self._time.now(), self._store
        redacted, forgotten = now - self._redacted_after, now - self._forgotten_after
        steps = await self._go_through(await store.kept_ledgers.find_unredacted(redacted, limit=_JOBS), self._redact)
        steps += await self._go_through(await store.kept_ledgers.find_old(forgotten, limit=_JOBS), self._forget)
        steps += await repeat(lambda: store.redaction.redact_singles(redacted, limit=_ROWS), while_full=_ROWS)
        steps += await repeat(lambda: store.redaction.forget_singles(forgotten, limit=_ROWS), while_full=_ROWS)
        return Swept(discarded=steps)

    async def _go_through(self, jobs: list[KeptJob], work: Callable[[KeptJob, int], Awaitable[int]]) -> int:
        """Work at each of these jobs with the steps left in this round; returns the steps taken."""
        taken = 0
        for kept in jobs:
            if taken >= _STEPS:
                break
            try:
                taken += await work(kept, _STEPS - taken)
            except Unavailable:
                raise
            except Exception:
                # The work on the other jobs continues.
                log.exception("messages of a job cannot be redacted or forgotten", job_id=kept.job.id)
        return taken

    async def _redact(self, kept: KeptJob, most: int) -> int:
        job, first, end = kept.job, kept.redacted_to, kept.job.plan.end or 0
        batches = max(1, _ROWS // options_of(job).batch_size)
        for step in range(1, most + 1):
            await self._store.redaction.redact_batches(job.incarnation, first, min(first + batches, end))
            await fault("redact.after_step")
            first = min(first + batches, end)
            # A reopened job keeps its recipients until it ends again, except those of this last step.
            if not await self._store.kept_ledgers.note_redacted(kept, first) or first == end:
                return step
        return most

    async def _forget(self, kept: KeptJob, most: int) -> int:
        job = kept.job
        if not kept.forgetting and not await self._begin_forgetting(kept):
            return 1
        await fault("forget.after_begin")
        for step in range(1, most + 1):
            if not await self._store.kept_ledgers.fold_some(job.key, rows=_ROWS):
                await self._remains.remove([job.key])
                await fault("forget.before_end")
                await self._store.kept_ledgers.end_forgetting(job.key)
                return step
            await fault("forget.after_fold")
        return most

    async def _begin_forgetting(self, kept: KeptJob) -> bool:
        job = kept.job
        plan = await self._store.files.plan(job.file_plan_id) if job.csv_path else None
        duplicates = 0 if plan is None else plan.repeated
        return await self._store.kept_ledgers.begin_forgetting(kept, duplicates=duplicates)


_REDACTED_AT_ONCE = 500
_REDACTION_STEPS = 20


class RecipientRedaction:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def redact(self, app_id: str, written: str) -> tuple[int, bool]:
        """Redact the app's messages to an address in any of its spellings. Returns how many, and whether there may be
        more for another call. Raises `Invalid` if this cannot be an address."""
        if not written or len(written) > ADDRESS_CHARACTERS:
            raise Invalid(f"an address has 1 to {ADDRESS_CHARACTERS:,} characters", field="address")
        total, addresses = 0, spellings_of(written)
        for _ in range(_REDACTION_STEPS):
            redacted = await self._store.redaction.redact_recipient(app_id, addresses, limit=_REDACTED_AT_ONCE)
            total += redacted
            if redacted < _REDACTED_AT_ONCE:
                return total, False
        return total, True


_AT_ONCE = 1_000


class MessageBelongings(Belongings):
    def __init__(self, store: Store) -> None:
        self._store = store

    async def check_idle(self, app_id: str) -> None:
        after = ""
        while page := await self._store.credentials.page(app_id, after=after, limit=CREDENTIALS_OF_AN_APP):
            for credential in page:
                await self._check_waiting(credential, app_id)
            after = page[-1].id

    async def _check_waiting(self, credential: Credential, app_id: str) -> None:
        """Raise `Conflict` if messages of the app wait, or messages of another app that use the app's own
        credential."""
        whose = "" if credential.app_id == app_id else app_id
        if await self._store.singles.has_pending(credential.id, app_id=whose):
            reason = f"single messages wait to be sent by the credential {credential.name}: take them back or wait"
            raise Conflict(reason, field="appId", value=app_id)

    async def remove_at_once(self, app_id: str) -> None:
        await self._store.credentials.remove_of(app_id)

    async def remove_some(self, app_id: str) -> bool:
        if await self._store.redaction.forget_some_of(app_id, limit=_AT_ONCE):
            return True
        return await self._store.suppressions.remove_some_of(app_id, limit=_AT_ONCE) > 0
