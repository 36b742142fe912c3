"""Feedback positions and counts."""

from typing import Any


class Feedbacks:
    """Placeholder for the walking skeleton."""

    def __init__(self, client: Any, database: Any) -> None:
        pass

    async def setup(self) -> None:
        pass
