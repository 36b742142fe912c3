"""RabbitMQ's management API, as an administrator uses it: an oracle that shares nothing with the code under test."""

import asyncio
import json
import urllib.request
from base64 import b64encode
from typing import Any
from urllib.parse import quote, urlsplit


class Administration:
    """One virtual host, by the AMQP URL that names it."""

    def __init__(self, management_url: str, amqp_url: str) -> None:
        self._url = urlsplit(management_url)
        self.vhost = urlsplit(amqp_url).path[1:]

    async def call(self, method: str, path: str, body: object = None) -> Any:
        return await asyncio.to_thread(self._call, method, path, body)

    async def connections(self) -> dict[str, str]:
        """The server's name of each connection to the virtual host, by the name that it was given."""
        found = await self.call("GET", f"vhosts/{self.vhost}/connections")
        return {each["user_provided_name"]: each["name"] for each in found if "user_provided_name" in each}

    async def cut(self, connection: str) -> None:
        await self.call("DELETE", f"connections/{quote(connection, safe='')}")

    async def delete_queue(self, name: str) -> None:
        await self.call("DELETE", f"queues/{self.vhost}/{name}")

    async def look_at(self, queue: str) -> list[dict[str, Any]]:
        """The messages that wait in the queue; they stay there."""
        wanted = {"count": 100, "ackmode": "ack_requeue_true", "encoding": "auto"}
        messages: list[dict[str, Any]] = await self.call("POST", f"queues/{self.vhost}/{queue}/get", wanted)
        return messages

    def _call(self, method: str, path: str, body: object) -> Any:
        request = urllib.request.Request(
            f"http://{self._url.hostname}:{self._url.port}/api/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
        )
        credentials = b64encode(f"{self._url.username}:{self._url.password}".encode()).decode()
        request.add_header("authorization", f"Basic {credentials}")
        request.add_header("content-type", "application/json")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")
