"""Lists, page by page: one page is held at a time, and `Link: rel="next"` leads to the next one."""

import re
import sys
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from carillon.attempts import Query
from carillon.errors import CarillonError
from carillon.transport import Transport

PAGE_SIZE = 100  # a schedule may be 256 KiB

T = TypeVar("T")

_NEXT = re.compile(r'<([^<>]*)>\s*;\s*rel="?next"?')


async def items(
    transport: Transport,
    path: str,
    query: Query | None,
    page: type[list[T]],
    *,
    limit: int | None = None,
    page_size: int = PAGE_SIZE,
    floats: Callable[[str], Any] = float,
) -> AsyncGenerator[T]:
    """All items of a list, or the first `limit`; those that are added behind the current position meanwhile are among
    them. Raises `CarillonError` where a page leads to itself."""
    left = sys.maxsize if limit is None else limit
    following: Query | None = {**(query or {}), "limit": str(min(page_size, left))}
    while following is not None and left > 0:
        answer = await transport.call("GET", path, query=following)
        for item in answer.read(page, floats)[:left]:
            yield item
            left -= 1
        present, following = following, next_query(answer.headers.get("Link", ""))
        if following == present and left > 0:
            raise CarillonError("the list goes round: its next page is the present one", status=answer.status)


def next_query(link: str) -> Query | None:
    """The query of the next page, `None` on the last. Only the query is read: the path is known, and a proxy may have
    moved it."""
    match = _NEXT.search(link)
    return dict(parse_qsl(urlsplit(match[1]).query, keep_blank_values=True)) if match else None
