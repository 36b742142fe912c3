"""What Routemaster's client (3.1, over Faraday 1.1 and Typhoeus 1.4) sends, byte for byte, as a socket received it."""

import base64

HOST = "127.0.0.1:17893"


def _head(method: str, path: str, token: str, host: str, body: bytes | None) -> bytes:
    shown = base64.b64encode(f"{token}:x".encode()).decode()
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Accept: */*", "User-Agent: Faraday v1.1.0"]
    lines += ["Content-Type: application/json"] if body is not None else []
    lines += [f"Authorization: Basic {shown}"]
    lines += [f"Content-Length: {len(body)}"] if body is not None else []
    return "\r\n".join([*lines, "", ""]).encode()


def request(method: str, path: str, token: str, body: bytes | None = None, *, host: str = HOST) -> bytes:
    """The request, as the client writes it."""
    return _head(method, path, token, host, body) + (body or b"")


CREATED = b'{"type":"create","url":"https://app.example.com/widgets/1","timestamp":null,"data":null}'
UPDATED = b'{"type":"update","url":"https://app.example.com/widgets/1","timestamp":1500000000123,"data":null}'
DELETED = '{"type":"delete","url":"https://app.example.com/widgets/1","timestamp":null,"data":{"foo":"bär"}}'.encode()
NOOP = b'{"type":"noop","url":"https://app.example.com/widgets/1","timestamp":null,"data":null}'
SUBSCRIBED = b'{"topics":["widgets","kitten"],"callback":"https://app.example.com/events","timeout":60000,"max":500}'
SUBSCRIBED_AGAIN = b'{"topics":["widgets"],"callback":"https://app.example.com/events","uuid":"hello"}'
TOKEN_ADDED = b'{"name":"my-service"}'
TOKEN_GIVEN = b'{"name":"my-service","token":"my-service--dead-0000-beef"}'

EMPTY: tuple[str | None, bytes] = (None, b"")
"""Of an answer: no media type, and no body."""

CONVERSATION = (
    ("GET", "/pulse", None, 204),
    ("POST", "/topics/widgets", CREATED, 200),
    ("POST", "/topics/widgets", UPDATED, 200),
    ("POST", "/topics/widgets", DELETED, 200),
    ("POST", "/topics/widgets", NOOP, 200),
    ("POST", "/subscription", SUBSCRIBED, 204),
    ("POST", "/subscription", SUBSCRIBED_AGAIN, 204),
    ("GET", "/topics", None, 200),
    ("GET", "/subscriptions", None, 200),
    ("DELETE", "/subscriber/topics/widgets", None, 204),
    ("DELETE", "/subscriber", None, 204),
    ("DELETE", "/topics/widgets", None, 204),
)
"""What a client asks, in its order, and how it is answered."""

OF_ROOT = (
    ("GET", "/api_tokens", None, 204),
    ("POST", "/api_tokens", TOKEN_ADDED, 201),
    ("POST", "/api_tokens", TOKEN_GIVEN, 201),
    ("GET", "/api_tokens", None, 200),
    ("DELETE", "/api_tokens/my-service--dead-0000-beef", None, 204),
)
"""What `rtm token` asks with the root key."""
