"""When tokens were used last: known to the minute, written beside the requests and never by each of them."""

import asyncio
from datetime import datetime

import structlog

from shared.domain.accounts.callers import Token
from shared.domain.errors import Unavailable
from shared.store import Store

log = structlog.get_logger(__name__)


class TokenUses:
    """Notes that tokens are used: of each one write at a time, and none while the last one is fresh."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._writes: dict[str, asyncio.Task[None]] = {}

    def note(self, token: Token, now: datetime) -> None:
        """Write in the background that this token is used now."""
        if token.is_use_unnoted(now) and token.id not in self._writes:
            write = asyncio.create_task(self._write(token, now))
            self._writes[token.id] = write
            write.add_done_callback(lambda _: self._writes.pop(token.id, None))

    async def _write(self, token: Token, now: datetime) -> None:
        try:
            await self._store.tokens.note_use(token, now)
        except Unavailable as error:
            log.warning("the use of a token is not noted", token=token.id, reason=str(error))
