"""Facts that a socket knows before the event loop does."""

import select
from asyncio import BaseTransport

_HALF_CLOSED = getattr(select, "POLLRDHUP", 0)  # Linux only; elsewhere a reset is visible, a polite close is not


def is_closed_by_peer(transport: BaseTransport | None) -> bool:
    """Whether the other end has closed the connection, as far as this machine knows."""
    return _polls(transport, _HALF_CLOSED)


def has_unread(transport: BaseTransport | None) -> bool:
    """Whether bytes or the end have arrived that the event loop has not read."""
    return _polls(transport, _HALF_CLOSED | select.POLLIN)


def _polls(transport: BaseTransport | None, events: int) -> bool:
    raw = transport.get_extra_info("socket") if transport is not None else None
    if raw is None or raw.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(raw.fileno(), events)
    return bool(poll.poll(0))
