"""Placeholder until the feedback service is in."""

from typing import Any


class Listener:
    name = "feedback"

    def __init__(self, *_: Any) -> None:
        pass
