"""Keeps a process from a database that was not set up, or that a later release has shut it out of."""

import asyncio
from contextlib import suppress

from shared.domain.documents import VERSION, Stamp, check_stamp
from shared.domain.errors import Unavailable
from shared.runtime.lifecycle import Background
from shared.runtime.loops import pause
from shared.store.database import Schema

_UNKNOWN_SECONDS, _KNOWN_SECONDS = 1.0, 60.0


class SchemaWatch(Background):
    """The component that reads the database's stamp: before anything else starts, if the database answers, and now and
    then while it runs. `start` and `wait` raise `TooOld`, which ends the process."""

    def __init__(self, schema: Schema) -> None:
        super().__init__("schema", self._watch)
        self._schema = schema
        self._stamp: Stamp | None = None

    async def start(self) -> None:
        with suppress(Unavailable):
            await self._look()
        await super().start()

    async def check(self) -> None:
        """Raise `Unavailable` where the `init` of this release has not been run, for `/readyz`."""
        if not self._is_set_up():
            await self._look()
        if not self._is_set_up():
            raise Unavailable("carillon init of this release has not been run on this database")

    def _is_set_up(self) -> bool:
        return self._stamp is not None and self._stamp.version >= VERSION

    async def _watch(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            await pause(stopping, _KNOWN_SECONDS if self._is_set_up() else _UNKNOWN_SECONDS)
            with suppress(Unavailable):
                await self._look()

    async def _look(self) -> None:
        self._stamp = await self._schema.read()
        if self._stamp is not None:
            check_stamp(self._stamp)
