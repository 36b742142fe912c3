"""The contents of a batch's messages: made a few at a time, shortly before their calls.

A batch that is made as a whole takes a thousand times its template in memory, and blocks the event loop.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise

from services.worker.messages.mailings import MessagesOfJob
from shared.domain.messages.contents import ends_of_groups, find_flaws
from shared.domain.messages.credentials import Credential
from shared.domain.messages.rendering import Body
from shared.domain.messages.unsubscribing import URL_FIELD
from shared.providers import Content

Columns = Mapping[str, Sequence[str]]


class BatchContents:
    """The contents of a batch's messages. `columns` hold the values of all its recipients, by tag. `urls`, if any, are
    the recipients' own links. `locales` are those of their templates."""

    def __init__(self, mailing: MessagesOfJob, columns: Columns, count: int, urls: Sequence[str] = ()) -> None:
        self._texts = mailing.texts
        self._columns = columns
        self._urls = urls
        self._lengths = self._texts.measure(columns, count)
        self.locales = self._texts.locales_of(columns, count)

    async def find_flaws(self, credential: Credential) -> dict[int, str]:
        """The reasons why some messages cannot be sent, by place. Other coroutines run in between."""
        found: dict[int, str] = {}
        for some in find_flaws(self._texts, self._columns, self._lengths, credential):
            found |= some
            await asyncio.sleep(0)
        return found

    def split(self, places: Sequence[int]) -> list[Callable[[], Content]]:
        """Functions that make the contents of these messages, none of which is too large. They should be called in
        about this order: the first call of a group renders the whole group, and each content is kept until it is
        taken."""
        lengths = [self._lengths[place] for place in places]
        groups = (_Together(self._render, places[first:end]) for first, end in pairwise(ends_of_groups(lengths)))
        return [partial(group.take, place) for group in groups for place in group.places]

    def _render(self, places: Sequence[int]) -> list[Body]:
        columns = {tag: [values[place] for place in places] for tag, values in self._columns.items()}
        bodies = [body for body in self._texts.render(columns, len(places)) if body is not None]
        if not self._urls:
            return bodies
        return [{**body, URL_FIELD: self._urls[place]} for place, body in zip(places, bodies, strict=True)]


class _Together:
    """Messages that are rendered together, when the first of them is taken."""

    def __init__(self, render: Callable[[Sequence[int]], list[Body]], places: Sequence[int]) -> None:
        self.places = places
        self._render = render
        self._bodies: dict[int, Body] | None = None

    def take(self, place: int) -> Content:
        """The content of the message at this place. It is returned once and not kept."""
        if self._bodies is None:
            self._bodies = dict(zip(self.places, self._render(self.places), strict=True))
        return self._bodies.pop(place)
