"""The receivers of `docs/checking-signatures.md` take signed calls, and refuse all others."""

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from standardwebhooks.webhooks import Webhook

from services.embedded.processes import free_port
from tests.e2e.test_first_steps import steps_of
from tests.stack.install import need_program
from tests.waiting import until

SECRET, BODY = "whsec_" + "c2VjcmV0LW9mLXRlc3Rz", '{"report": "sales", "total": 1.10}'
COMMANDS: dict[str, Callable[[str], list[str]]] = {
    "app.py": lambda file: [sys.executable, file],
    "app.mjs": lambda file: [need_program("node", "nodejs"), file],
    "app.go": lambda file: [need_program("go", "golang-go"), "run", file],
}


@pytest.mark.parametrize(
    "name",
    ["app.py", *(pytest.param(name, marks=[pytest.mark.native, pytest.mark.slow]) for name in ("app.mjs", "app.go"))],
)
async def test_a_receiver_of_the_page_takes_signed_calls_alone(name: str, tmp_path: Path) -> None:
    (step,) = (step for step in steps_of("docs/checking-signatures.md", "Python") if step.file == name)
    port = free_port()
    (tmp_path / name).write_text(step.text.replace("9000", str(port)))
    environment = os.environ | {
        "SECRET": SECRET,
        "GOFLAGS": "",
        "GOCACHE": str(tmp_path / "cache"),
        "GO111MODULE": "off",
    }
    receiver = subprocess.Popen(COMMANDS[name](name), cwd=tmp_path, env=environment, start_new_session=True)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as caller:

            async def answers() -> bool:
                try:
                    await caller.post("/")
                except httpx.TransportError:
                    return False
                return True

            await until(answers, f"{name} to listen")
            now = datetime.now(UTC)
            signed, old, other = sign(now), sign(now - timedelta(hours=1)), sign(now, "whsec_b3RoZXI=")
            several = signed | {"webhook-signature": f"{other['webhook-signature']} {signed['webhook-signature']}"}
            calls = [(signed, BODY), (several, BODY), (signed, BODY + " "), (old, BODY), (other, BODY), ({}, BODY)]
            statuses = [(await caller.post("/", headers=headers, content=body)).status_code for headers, body in calls]
    finally:
        os.killpg(receiver.pid, 9)
        receiver.wait()
    assert statuses == [204, 204, 403, 403, 403, 403]


def sign(at: datetime, secret: str = SECRET) -> dict[str, str]:
    """The headers of a call with this body, by the reference implementation."""
    signature = Webhook(secret).sign("msg_1", at, BODY)
    headers = {"webhook-id": "msg_1", "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": signature}
    return headers | {"content-type": "application/json"}
