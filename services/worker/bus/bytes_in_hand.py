"""The bytes of events that a process holds for all queues together."""

from shared.runtime.fair_budget import FairBudget

BYTES_IN_HAND = 64 * 2**20
"""The bytes of events that all runs of a process hold together, from reading chunks or open deliveries until these are
settled. Each exists a few times for moments: as a document, as a body, and in the transaction that cuts it. A single
cut may exceed this."""


class ByteShare:
    """The bytes that one run holds of a budget, for its namespace."""

    def __init__(self, budget: FairBudget) -> None:
        self._budget = budget
        self._namespace = ""
        self._size = 0

    def can_take(self, namespace: str, size: int) -> bool:
        """Whether it may ask for more. A run that holds some must not wait, or two could wait for each other."""
        return self._size == 0 or self._budget.has_room(namespace, size)

    async def take(self, namespace: str, size: int) -> None:
        """Wait until there is room, and take it."""
        await self._budget.take(namespace, size)
        self._namespace = namespace
        self._size += size

    def give_back(self) -> None:
        if self._size:
            self._budget.give_back(self._namespace, self._size)
            self._size = 0
