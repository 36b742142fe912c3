"""A gauge of the whole deployment: credentials that send nothing although jobs wait for them."""

from collections import Counter

from shared.domain.messages.credentials import Credential, CredentialStatus
from shared.runtime.metrics import CREDENTIALS_BLOCKED
from shared.store import Store

INTERVAL_SECONDS = 60.0
_PAGE = 100


class CredentialGauges:
    """Counts blocked credentials for `/metrics` of schedulers."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read_once(self) -> None:
        """Count once. If the store is away, the gauge is empty rather than old."""
        try:
            counts = Counter(credential.status for credential in await find_blocked(self._store))
        finally:
            CREDENTIALS_BLOCKED.clear()
        for status in CredentialStatus:
            if not status.sends:
                CREDENTIALS_BLOCKED.labels(status.value).set(counts[status])


async def find_blocked(store: Store) -> list[Credential]:
    """The credentials that send nothing although jobs wait for them."""
    blocked: list[Credential] = []
    after = ""
    while found := await store.credentials.find_still(after=after, limit=_PAGE):
        after = found[-1].id
        blocked += [one for one in found if await store.message_jobs.find_running(one.id, limit=1)]
    return blocked
