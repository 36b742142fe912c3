"""Apple's Push Notification service over HTTP/2 as a process: whom it lets in, what it takes, and its words.

It speaks HTTP/2 without TLS. A connection takes one call at a time until it has seen a token that is good, and a
thousand from then on. A call is examined where its rule would accept it. The header `Device-Limit` of a rule is the
most pushes that a device gets.
"""

import asyncio
import base64
import json
import re
import time
import uuid
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, RequestReceived, StreamEnded
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from tests.providers.http_fake import serve
from tests.providers.keys import p256_key
from tests.providers.notes import Notes, reset
from tests.providers.rules import Arrived, Counts, Cut, Rule, StreamEnd

TEAM, KEY, TOPIC = "TEAM123456", "KEY1234567", "com.example.app"
GONE = "dead" * 16

_STREAMS = 1_000
_DEVICE = re.compile(r"[0-9a-f]{64}", re.IGNORECASE)
_TYPES = frozenset({"alert", "background", "location", "voip", "complication", "fileprovider", "mdm", "liveactivity"})
_TOKEN_SECONDS = 3_600
_STATUS = {
    "Unregistered": 410,
    "PayloadTooLarge": 413,
    "TooManyRequests": 429,
    "TooManyProviderTokenUpdates": 429,
    "BadPath": 404,
    "MethodNotAllowed": 405,
}


class Call:
    """A call that is coming in."""

    def __init__(self, headers: dict[str, str], rule: Rule) -> None:
        self.began = (time.monotonic_ns(), time.time())
        self.headers = headers
        self.rule = rule
        self.body = bytearray()


class ApnsConnection(asyncio.Protocol):
    """One connection, with many calls at a time."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        settings = {SettingCodes.MAX_CONCURRENT_STREAMS: 1, SettingCodes.MAX_HEADER_LIST_SIZE: 8_000}
        self._h2.local_settings = Settings(client=False, initial_values=settings)
        self._calls: dict[int, Call] = {}
        self._answering = set[int]()
        self._raised = False
        self._leaving = False
        self._transport: Any = None
        self._counts = Counts()
        self._peer = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._counts = self._notes.connect()
        self._peer = self._counts.connections
        self._h2.initiate_connection()
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._counts.ended += 1

    def data_received(self, data: bytes) -> None:
        try:
            events = self._h2.receive_data(data)
        except ProtocolError:
            self._transport.abort()
            return
        for event in events:
            match event:
                case RequestReceived(stream_id=stream_id, headers=headers):
                    self._begin(stream_id, {str(name): str(value) for name, value in headers})
                case DataReceived(stream_id=stream_id, data=body, flow_controlled_length=size):
                    self._h2.acknowledge_received_data(size, stream_id)
                    self._notes.counts.bytes += len(body)
                    if stream_id in self._calls:
                        self._calls[stream_id].body += body
                case StreamEnded(stream_id=stream_id):
                    self._take(stream_id)
                case _:
                    pass
        self._flush()

    def _begin(self, stream_id: int, headers: dict[str, str]) -> None:
        self._notes.counts.bytes += sum(len(name) + len(value) for name, value in headers.items())
        if self._leaving:
            return
        rule = self._notes.rule()
        match rule:
            case Rule(cut=Cut.BEGINNING):
                reset(self._transport)
            case Rule(stream=StreamEnd.REFUSED):
                self._h2.reset_stream(stream_id, ErrorCodes.REFUSED_STREAM)
            case Rule(stream=StreamEnd.GOODBYE):
                self._say_goodbye(stream_id - 1)
            case _:
                self._calls[stream_id] = Call(headers, rule)

    def _take(self, stream_id: int) -> None:
        if (call := self._calls.pop(stream_id, None)) is None:
            return
        (began, at), path = call.began, call.headers[":path"]
        arrived = Arrived(began, at, self._peer, path, call.headers, call.body.decode())
        self._notes.arrived.append(arrived)
        self._notes.begin()
        self._answering.add(stream_id)
        rule = self._examine(arrived, call.rule)
        if rule.held:
            self._notes.hold(lambda: self._answer(stream_id, rule))
        else:
            asyncio.get_running_loop().call_later(rule.delay_seconds, self._answer, stream_id, rule)

    def _answer(self, stream_id: int, rule: Rule) -> None:
        if rule.hang or self._transport.is_closing():
            return
        self._notes.end()
        self._answering.discard(stream_id)
        if rule.cut is Cut.CALL:
            reset(self._transport)
            return
        try:
            self._tell(stream_id, rule)
        except ProtocolError:
            return  # nobody waits for it any more
        if rule.close:
            self._say_goodbye(stream_id)
        if self._leaving and not self._answering:
            self._transport.close()

    def _tell(self, stream_id: int, rule: Rule) -> None:
        if rule.stream is StreamEnd.RESET:
            self._h2.reset_stream(stream_id, ErrorCodes.INTERNAL_ERROR)
            self._flush()
            return
        headers = [(":status", str(rule.status)), ("apns-id", str(uuid.uuid4()).upper())]
        headers += [(name.lower(), value) for name, value in rule.headers.items()]
        self._h2.send_headers(stream_id, headers, end_stream=not rule.text)
        if rule.cut is Cut.ANSWER:
            self._transport.write(self._h2.data_to_send()[:5])
            asyncio.get_running_loop().call_later(0.02, reset, self._transport)
            return
        if rule.cut is Cut.BODY:
            self._flush()
            asyncio.get_running_loop().call_later(0.02, reset, self._transport)
            return
        if rule.text:
            self._h2.send_data(stream_id, rule.text.encode(), end_stream=True)
        if rule.status == 200 and not self._raised:
            self._raised = True
            self._h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: _STREAMS})
        self._flush()

    def _say_goodbye(self, last_id: int) -> None:
        """As a frame of ours: `h2` would send nothing more behind its own, and earlier calls are to be answered."""
        self._flush()
        payload = last_id.to_bytes(4) + (0).to_bytes(4) + b'{"reason":"Shutdown"}'
        self._transport.write(len(payload).to_bytes(3) + b"\x07\x00" + (0).to_bytes(4) + payload)
        self._leaving = True
        if not self._answering:
            self._transport.close()

    def _flush(self) -> None:
        if not self._transport.is_closing() and (data := self._h2.data_to_send()):
            self._transport.write(data)

    def _examine(self, call: Arrived, rule: Rule) -> Rule:
        if rule.status != 200:
            return rule
        limit = int(rule.headers.get("Device-Limit", "1000000"))
        had = sum(known.path == call.path for known in self._notes.arrived)
        reason = _login_fault(call) or _call_fault(call) or ("TooManyRequests" if had > limit else None)
        return rule if reason is None else refusal(reason)


def refusal(reason: str) -> Rule:
    """An error as APNs tells it."""
    status = _STATUS.get(reason, 403 if "Token" in reason and "Provider" in reason else 400)
    told: dict[str, Any] = {"reason": reason}
    if status == 410:
        told["timestamp"] = int(time.time() * 1_000)
    return Rule(status, json.dumps(told))


def _login_fault(call: Arrived) -> str | None:
    kind, _, token = call.headers.get("authorization", "").partition(" ")
    if kind != "bearer":
        return "MissingProviderToken"
    content, _, signature = token.rpartition(".")
    header, claims = (json.loads(_decode(part)) for part in content.split("."))
    raw = _decode(signature)
    encoded = encode_dss_signature(int.from_bytes(raw[:32]), int.from_bytes(raw[32:]))
    try:
        p256_key().public_key().verify(encoded, content.encode(), ec.ECDSA(SHA256()))
    except InvalidSignature:
        return "InvalidProviderToken"
    if (header["alg"], header["kid"], claims["iss"]) != ("ES256", KEY, TEAM):
        return "InvalidProviderToken"
    return "ExpiredProviderToken" if time.time() - claims["iat"] > _TOKEN_SECONDS else None


def _call_fault(call: Arrived) -> str | None:
    headers = call.headers
    device = call.path.removeprefix("/3/device/")
    push_type, priority = headers.get("apns-push-type"), headers.get("apns-priority", "10")
    checks = {
        "MethodNotAllowed": headers[":method"] == "POST",
        "BadPath": call.path.startswith("/3/device/"),
        "MissingDeviceToken": bool(device),
        "BadDeviceToken": _DEVICE.fullmatch(device) is not None,
        "Unregistered": device != GONE,
        "MissingTopic": "apns-topic" in headers,
        "DeviceTokenNotForTopic": headers.get("apns-topic") == TOPIC,
        "InvalidPushType": push_type in _TYPES,
        "BadPriority": priority in {"1", "5"} or (priority == "10" and push_type != "background"),
        "BadExpirationDate": headers.get("apns-expiration", "0").isdecimal(),
        "BadCollapseId": len(headers.get("apns-collapse-id", "")) <= 64,
        "PayloadEmpty": bool(call.body),
        "PayloadTooLarge": len(call.body.encode()) <= (5_120 if push_type == "voip" else 4_096),
    }
    return next((reason for reason, holds in checks.items() if not holds), None)


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


if __name__ == "__main__":
    asyncio.run(serve(ApnsConnection))
