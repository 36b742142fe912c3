"""Lifting a pause that a provider has asked for and that is known to be over: it may last a day.

the account's hold ends ──> batches that were put back until then are due ──> the clock feeds the credential
"""

import structlog

from shared.domain.clock.occurrences import once
from shared.domain.errors import Unavailable
from shared.domain.instants import ms
from shared.domain.messages.owners import credential_owner, singles_owner
from shared.domain.messages.slowing import lift
from shared.store import Store

log = structlog.get_logger(__name__)

_TRIES = 20
_JOBS = 1_000


async def lift_pause(store: Store, credential_id: str) -> None:
    """Send what waits for the credential as soon as its rate allows. An extra call does no harm: batches that are not
    due yet are put back again."""
    await _end_hold(store, credential_id)
    for job in await store.message_jobs.find_running(credential_id, limit=_JOBS):
        await store.message_batches.bring_forward(job.key)
    now = await store.now()
    owners = (credential_owner(credential_id), singles_owner(credential_id))
    await store.occurrences.add([once(owner, str(ms(now)), now, accepted_at=now) for owner in owners])


async def _end_hold(store: Store, credential_id: str) -> None:
    for _ in range(_TRIES):
        traffic = await store.credentials.get_traffic(credential_id)
        if traffic is None or not traffic.pace.hold_until_us:
            return
        if await store.credentials.change_traffic(credential_id, traffic.pace.seq, lift(traffic.pace), traffic.places):
            log.info("the pause of an account is lifted", credential=credential_id)
            return
    raise Unavailable("too many others change this account's pace")
