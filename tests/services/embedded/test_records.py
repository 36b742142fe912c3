"""`carillon records`: the log of a `carillon up`, for a pusher that its author tries."""

import io
import sys
from pathlib import Path

import pytest

from services.embedded.instance import append_feedback, print_records
from shared.core.errors import Invalid
from shared.drivers.kafka.local import LocalStream


async def test_feedback_is_appended_and_a_line_that_does_not_count_is_named(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = LocalStream(tmp_path / "log")
    lines = b'{"metadata": {"jobId": "1"}}\n{"metadata": {}}\nno JSON\n'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert await append_feedback(stream, "demo-feedbacks") == 1
    assert await print_records(stream, "demo-feedbacks", follow=False) == 0
    out, err = capfdbinary.readouterr()
    assert out == lines
    await stream.close()
    assert err == b"line 2 is not counted: no-job\nline 3 is not counted: unreadable\n"


async def test_a_topic_without_records_is_refused(tmp_path: Path) -> None:
    stream = LocalStream(tmp_path / "log")
    await stream.publish("push-demo_apns-massive", [b"{}"])
    with pytest.raises(Invalid, match="push-demo_apns-massive"):
        await print_records(stream, "push-demo", follow=False)
    await stream.close()
