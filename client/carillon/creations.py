"""Things whose names are unique, made once."""

from collections.abc import Callable
from contextlib import aclosing
from http import HTTPStatus
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from carillon.errors import error_of
from carillon.paging import items
from carillon.transport import Answer, Transport

CONFLICT = frozenset({int(HTTPStatus.CONFLICT)})

T = TypeVar("T")


class Creation(Struct, Generic[T], frozen=True):
    """Makes one of the things that a list shows.

    A conflict behind an attempt whose answer was lost may be with what that attempt made. So what the list shows with
    the same content is taken for it.
    """

    transport: Transport
    path: str
    decoder: msgspec.json.Decoder[T]
    page: msgspec.json.Decoder[list[T]]

    async def create(self, content: bytes, is_wanted: Callable[[T], bool], reason: str) -> T:
        """Create the thing, and give it as the server has stored it. Raises `CarillonError`."""
        answer = await self.transport.call("POST", self.path, content=content, reason=reason, done_before=CONFLICT)
        if answer.status != HTTPStatus.CONFLICT:
            return answer.read(self.decoder)
        return await self.find(is_wanted, answer)

    async def find(self, is_wanted: Callable[[T], bool], conflict: Answer) -> T:
        """The wanted thing, as the list shows it. Raises the conflict where it is not there."""
        async with aclosing(items(self.transport, self.path, {}, self.page)) as found:
            async for item in found:
                if is_wanted(item):
                    return item
        raise error_of(conflict.status, conflict.content)
