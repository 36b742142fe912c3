"""The sandbox exists where it is allowed, notes what arrives, and answers as the address asks."""

import json
import stat
from pathlib import Path

import pytest

from shared.core.errors import Invalid
from shared.messages.rules.answers import CallRefused, CallUnanswered, NotNow, Reason
from shared.providers import Provider, ProviderRules
from shared.providers.sandbox import SandboxKind
from tests.clocks import ManualClock


def opened(path: Path | str, seconds: float = 10.0) -> Provider:
    kind = SandboxKind(ProviderRules(call_seconds=seconds, sandbox_file=str(path)), ManualClock())
    return kind.open({}, {}, None)  # type: ignore[arg-type]


async def test_a_line_tells_all(tmp_path: Path) -> None:
    path = tmp_path / "arrivals.ndjson"
    for number in (1, 2):
        await opened(path).send({"text": "ü\n"}, "ana@example.com", f"m~{number}", lambda: True)
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [(line["to"], line["key"], line["content"]) for line in lines] == [
        ("ana@example.com", "m~1", {"text": "ü\n"}),
        ("ana@example.com", "m~2", {"text": "ü\n"}),
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_bounce_is_one(tmp_path: Path) -> None:
    answer = await opened(tmp_path / "a").send({}, "ana+bounce@example.com", "m~1", lambda: True)
    assert answer == CallRefused(Reason.HARD_BOUNCE, "a…@example.com bounces, as it asks for")


async def test_what_is_slower_than_a_call_has_no_answer(tmp_path: Path) -> None:
    answer = await opened(tmp_path / "a", seconds=0.01).send({}, "+6591234567+slow", "m~1", lambda: True)
    assert isinstance(answer, CallUnanswered)


async def test_a_file_that_cannot_be_written_is_not_now(tmp_path: Path) -> None:
    for path in ("", tmp_path / "missing" / "a"):
        assert isinstance(await opened(path).send({}, "a", "m~1", pytest.fail), NotNow)


def test_it_exists_where_it_is_allowed() -> None:
    with pytest.raises(Invalid, match=r"providers\.sandbox_file"):
        SandboxKind(ProviderRules()).check({}, {})
    allowed = SandboxKind(ProviderRules(sandbox_file="/tmp/x"))
    allowed.check({}, {})
    with pytest.raises(Invalid) as caught:
        allowed.check({"url": "x"}, {})
    assert caught.value.field == "url"
