"""Clients of the bus, each with a token of its own."""

import itertools
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest_asyncio

from tests.services.api.client import Client, Reply
from tests.services.api.conftest import ROOT_KEY, House

CALLBACK = "https://app.example.com/events"
URL = "https://app.example.com/widgets/1"
_serials = itertools.count()


@dataclass
class Bus:
    house: House
    root: Client

    async def client(self, name: str = "alice") -> Client:
        """A client with a token of its own."""
        made = await self.root.post("/api_tokens", {"name": name})
        assert made.status == 201, made.body
        return self.root.client(made.json["token"])

    def topic(self) -> str:
        """The name of a topic that is nobody's."""
        return "topic_" + "".join(chr(97 + int(digit)) for digit in str(next(_serials))) + _letters()

    async def topics(self) -> dict[str, str | None]:
        """The topics with their publishers, as root sees them."""
        return {each["name"]: each["publisher"] for each in (await self.root.get("/topics")).json}


@pytest_asyncio.fixture(loop_scope="module")
async def bus(house: House) -> AsyncIterator[Bus]:
    yield Bus(house, house.admin.client(ROOT_KEY))


def event(**fields: object) -> dict[str, object]:
    return {"type": "create", "url": URL} | fields


def subscription(*topics: str, **fields: object) -> dict[str, object]:
    return {"topics": list(topics), "callback": CALLBACK} | fields


def is_empty(reply: Reply, status: int) -> bool:
    """Whether it is this status, with nothing behind its head."""
    return reply.status == status and reply.body == b""


def is_refused(reply: Reply, status: int) -> bool:
    """Whether it is a problem of this status."""
    problem = reply.headers["content-type"] == "application/problem+json" and reply.json["status"] == status
    return reply.status == status and problem


def _letters() -> str:
    return "".join(secrets.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(8))
