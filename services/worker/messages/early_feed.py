"""Feeding a credential while one of its batches is still being sent, so that the next one is prepared meanwhile.

It runs beside the sending: a broker that does not answer delays no batch, and failures are tried again when the batch
ends.
"""

import asyncio

import structlog

from shared.domain.errors import Unavailable
from shared.flow.messages.feeding import CredentialFeed

log = structlog.get_logger(__name__)


class EarlyFeed:
    """Feeds credentials, each once at a time."""

    def __init__(self, feed: CredentialFeed) -> None:
        self._feed = feed
        self._feeding: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()

    def begin(self, credential_id: str) -> None:
        """Feed this credential soon; if it is being fed, once more."""
        if credential_id in self._feeding:
            self._again.add(credential_id)
        else:
            self._feeding[credential_id] = asyncio.create_task(self._feed_one(credential_id))

    async def close(self) -> None:
        """Wait for running feeds, because a queued batch has to be published."""
        await asyncio.gather(*self._feeding.values())

    async def _feed_one(self, credential_id: str) -> None:
        try:
            await self._feed.feed_credential(credential_id)
            while credential_id in self._again:
                self._again.remove(credential_id)
                await self._feed.feed_credential(credential_id)
        except Unavailable as error:
            log.warning("the next batch is not let in yet", credential=credential_id, reason=str(error))
        except Exception:
            log.exception("the next batch is not let in", credential=credential_id)
        finally:
            self._again.discard(credential_id)
            del self._feeding[credential_id]
