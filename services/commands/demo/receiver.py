"""A simulated receiver: reads the records as Pusher would, and answers to each on the feedback topic.

It reports most pushes as delivered, in the shape of the Pusher that still did that, and some as failed, in the shape of
the current one. The token decides which, so that the counts can be checked.
"""

import re
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from shared.domain.push.feedback import ACK
from shared.stream import Stream

# (of a thousand devices, so many; the receiver's reason; its status; its key, which is the outcome that is counted)
FAILURES = (
    (15, "Unregistered", 410, "unregistered"),
    (5, "BadDeviceToken", 400, "bad-device-token"),
)
_READ_SECONDS = 0.25


class _PushMetadata(Struct, gc=False):
    jobId: str  # noqa: N815 - the name in the record
    userId: str  # noqa: N815
    muid: str
    pushTime: int  # noqa: N815
    templateName: str  # noqa: N815
    pushType: str  # noqa: N815


class _PushRecord(Struct, gc=False):
    DeviceToken: str
    Payload: msgspec.Raw
    metadata: _PushMetadata


class Receiver:
    """The receiver of one job. It keeps how many records each device got, what it answered, and when the first and the
    last record came."""

    def __init__(self, stream: Stream, topic: str, job_id: str) -> None:
        self.tokens: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.first_at = 0.0
        self.last_at = 0.0
        self._stream = stream
        self._topic = topic
        self._job_id = job_id

    async def run(self) -> None:
        """Receive until cancelled."""
        async with self._stream.reader(re.escape(self._topic), group="demo-receiver") as reader:
            while True:
                for chunk in await reader.read(_READ_SECONDS):
                    await self._receive(value for value in chunk.values if value is not None)

    async def _receive(self, values: Iterable[bytes]) -> None:
        records = [record for record in map(_decode, values) if record.metadata.jobId == self._job_id]
        if not records:
            return
        self.last_at = time.monotonic()
        self.first_at = self.first_at or self.last_at
        self.tokens.update(record.DeviceToken for record in records)
        outcomes = [outcome(record.DeviceToken) for record in records]
        answers = [_answer(record, *found) for record, found in zip(records, outcomes, strict=True)]
        await self._stream.publish(f"{self._topic}-feedbacks", answers)
        self.answers.update(key or ACK for _, _, key in outcomes)


_decode = msgspec.json.Decoder(_PushRecord).decode


def outcome(token: str) -> tuple[str, int, str]:
    """The outcome of a push to this device: its reason, status and key; reason and key are empty if all is well."""
    place = int(token[:8], 16) % 1000
    for share, reason, status, key in FAILURES:
        if place < share:
            return reason, status, key
        place -= share
    return "", 200, ""


def _answer(record: _PushRecord, reason: str, status: int, key: str) -> bytes:
    metadata = record.metadata
    answer: dict[str, Any] = {
        "Sent": not key,
        "StatusCode": status,
        "Reason": reason,
        "ApnsID": metadata.muid,
        "Err": {"Key": key, "Description": reason} if key else None,
        "DeviceToken": record.DeviceToken,
        "timestamp": int(time.time()),
        "metadata": {
            **msgspec.structs.asdict(metadata),
            "game": "demo",
            "deviceToken": record.DeviceToken,
            "hostname": "demo",
        },
        "Notification": record.Payload,
    }
    if key:
        answer["metadata"]["deleteToken"] = True
    return msgspec.json.encode(answer)
