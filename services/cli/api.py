"""The API as the verbs use it: by path, with JSON as it is. So fields of a newer API are shown too, and `--json` prints
the answer. Attempts, errors, idempotency keys, pages and uploads are the client's."""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Self

import msgspec

from carillon.attempts import path_of
from carillon.blocking_runtime import BlockingRuntime
from carillon.bus import BusDeliveries
from carillon.calls import GONE, Sync, items, iterate, run
from carillon.jobs import Jobs
from carillon.templates import Uploads
from carillon.transport import Transport
from carillon.values import encode
from shared.core.plain_words import decode_but

PAGE = 1_000
TIMEOUT_SECONDS = 60.0
ATTEMPTS = 4
IMPATIENT_SECONDS = 1.0
REASON = "x-carillon-reason"

Json = dict[str, Any]


class Api:
    """A deployment's API, until it is closed. It raises the client's errors: `CarillonError`, and `ValueError` for an
    impossible request."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.jobs: Jobs[Sync] = Jobs(transport)
        self.uploads: Uploads[Sync] = Uploads(transport)
        self.bus_deliveries: BusDeliveries[Sync] = BusDeliveries(transport)

    @classmethod
    def connect(cls, url: str, *, token: str, user: str, reason: str, agent: str, patient: bool) -> Self:
        """The API at this URL. The audit shows `reason` beside every act; without `patient` a request is made once,
        with a short timeout."""
        headers = {
            "Authorization": f"Bearer {token}" if token else "",
            "x-forwarded-email": user if not token else "",
            REASON: reason,
            "User-Agent": agent,
        }
        transport = Transport(
            url,
            runtime=BlockingRuntime(),
            headers={name: text for name, text in headers.items() if text},
            timeout_seconds=TIMEOUT_SECONDS if patient else IMPATIENT_SECONDS,
            attempts=ATTEMPTS if patient else 1,
            connections=1,
        )
        return cls(transport)

    def close(self) -> None:
        run(self._transport.close())

    def get(self, *path: str, **query: Any) -> Any:
        return self._send("GET", path, query)

    def header(self, name: str, *path: str, **query: Any) -> str:
        """A header of the answer to a GET; `""` without it."""
        return run(self._transport.call("GET", path_of(*path), query=_query(query))).headers.get(name, "")

    def items(self, *path: str, limit: int | None = None, **query: Any) -> Iterator[Json]:
        """The items of a list, page by page, at most `limit`."""
        found = items(
            self._transport, path_of(*path), _query(query), list[msgspec.Raw], limit=limit or None, page_size=PAGE
        )
        return (decode_but(bytes(item)) for item in iterate(found))

    def post(self, *path: str, body: Any = None, once: bool = False, **query: Any) -> Any:
        """The answer to a POST. With `once` it is not repeated if it may have arrived."""
        return self._send("POST", path, query, body, once=once)

    def create(self, *path: str, body: Any) -> tuple[Any, bool]:
        """The answer to a POST that leaves a thing with the same content as it is, and whether it made one."""
        answer = run(self._transport.call("POST", path_of(*path), content=encode(body)))
        return decode_but(bytes(answer.read(msgspec.Raw))), answer.status == HTTPStatus.CREATED

    def end(self, *path: str, **query: Any) -> Any:
        """The answer to a POST that removes a thing: if an earlier attempt may have arrived, a missing thing is
        success."""
        return self._send("POST", path, query, done_before=GONE)

    def put(self, *path: str, body: Any = None, once: bool = False, **query: Any) -> Any:
        """The answer to a PUT; `once` as for a POST."""
        return self._send("PUT", path, query, body, once=once)

    def patch(self, *path: str, body: Any, **query: Any) -> Any:
        return self._send("PATCH", path, query, body)

    def delete(self, *path: str, **query: Any) -> None:
        self._send("DELETE", path, query, done_before=GONE)

    def redact(self, app_id: str, recipient: str) -> Json:
        redacted: Json = self._send("DELETE", ("apps", app_id, "recipients"), {"address": recipient})
        return redacted

    def _send(
        self,
        method: str,
        path: tuple[str, ...],
        query: dict[str, Any],
        body: Any = None,
        *,
        done_before: frozenset[int] = frozenset(),
        once: bool = False,
    ) -> Any:
        content = b"" if body is None else encode(body)
        call = self._transport.call(
            method, path_of(*path), query=_query(query), content=content, done_before=done_before, once=once
        )
        answer = run(call)
        if not answer.content or answer.status in done_before:
            return {}
        return decode_but(bytes(answer.read(msgspec.Raw)))


def _query(given: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in given.items() if value not in {None, ""}}
