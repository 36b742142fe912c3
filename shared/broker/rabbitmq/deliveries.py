"""Users' messages: each goes by the channel of its exchange; if one of many closed the channel, each is sent alone."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from shared.broker.rabbitmq.confirms import ConfirmGroup, Entangled
from shared.broker.rabbitmq.links import Line, Link
from shared.domain.clock.deliveries import Outcome, QueueMessage
from shared.domain.errors import Unavailable

# No exchange has such a name: AMQP's are valid UTF-8 without control characters.
_ALONE = "\x00alone"


class QueueDeliverer:
    """Sends messages over its own connection and waits for the confirms, at most `timeout_seconds`."""

    def __init__(self, line: Line, timeout_seconds: float) -> None:
        self._line = line
        self._timeout = timeout_seconds
        self._alone = asyncio.Lock()

    async def deliver(self, messages: Sequence[QueueMessage]) -> list[Outcome]:
        groups = _by_exchange(messages)
        reason = Unavailable("RabbitMQ: deliver: no answer")
        try:
            async with self._line.ask("deliver", self._timeout) as link:
                await asyncio.gather(*(self._send(link, exchange, group) for exchange, (group, _) in groups.items()))
        except Unavailable as error:
            reason = error
        outcomes: list[Outcome] = [None] * len(messages)
        for group, places in groups.values():
            group.settle_rest(reason)
            for place, outcome in zip(places, group.outcomes, strict=True):
                outcomes[place] = outcome
        return outcomes

    async def close(self) -> None:
        await self._line.close()

    async def _send(self, link: Link, exchange: str, group: ConfirmGroup) -> None:
        """Send the group; send a message again, alone, if another message closed its channel."""
        await _through(link, exchange, group)
        for index, outcome in enumerate(group.outcomes):
            if isinstance(outcome, Entangled):
                async with self._alone:
                    alone = ConfirmGroup([group.messages[index]])
                    await _through(link, _ALONE, alone)
                group.outcomes[index] = alone.outcomes[0]


async def _through(link: Link, name: str, group: ConfirmGroup) -> None:
    try:
        channel = await link.open_confirmed(name)
    except Unavailable as error:
        group.settle_rest(error)
    else:
        await channel.deliver(group)


def _by_exchange(messages: Sequence[QueueMessage]) -> dict[str, tuple[ConfirmGroup, list[int]]]:
    """A group per exchange, and the indexes of its messages among all."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, message in enumerate(messages):
        places[message.exchange].append(place)
    return {exchange: (ConfirmGroup([messages[place] for place in here]), here) for exchange, here in places.items()}
