"""Which rights at RabbitMQ the doctor demands: those of `docs/security.md`, and he takes none away."""

import shlex
from collections.abc import Mapping
from typing import Any, cast

import pytest

from shared.drivers.rabbitmq.links import Line
from shared.drivers.rabbitmq.management import Management, RabbitInspection, Rights
from tests.stack.places import CHECKOUT

READ = r"^((push|sched|carillon|bus)\..*|ops\.bulk.*|message\.(batch|single).*)$"
WRITE = r"^amq\.default$"


class GrantingManagement(Management):
    """Tells what was granted."""

    def __init__(self, granted: Mapping[str, str] | None) -> None:
        super().__init__(None, vhost="carillon", user="carillon")
        self._granted = granted

    async def ask(self, path: str) -> Any:
        assert path == "/permissions/carillon/carillon"
        return self._granted


async def rights(granted: Mapping[str, str] | None) -> Rights:
    line = cast(Line, None)  # nobody asks by AMQP
    inspection = RabbitInspection(line, GrantingManagement(granted), vhost="carillon", user="carillon")
    return await inspection.read_rights(["push.mail", "ops.bulk"])


async def test_the_least_rights_of_the_manual_are_enough() -> None:
    manual = (CHECKOUT / "docs" / "security.md").read_text("utf-8")
    assert shlex.join(("set_permissions", "-p", "carillon", "carillon", "^$", WRITE, READ)) in manual
    assert (await rights({"configure": "^$", "write": WRITE, "read": READ})).missing == []


@pytest.mark.parametrize(
    ("granted", "missing", "remedy"),
    [
        (None, 3, ("^$", WRITE, READ)),
        ({"configure": "", "write": "", "read": ""}, 3, ("^$", WRITE, READ)),
        ({"configure": ".*", "write": ".*", "read": "^push"}, 1, (".*", ".*", f"^push|{READ}")),
        ({"configure": "^own$", "write": "^events$", "read": ".*"}, 1, ("^own$", f"^events$|{WRITE}", ".*")),
    ],
)
async def test_what_is_granted_is_kept_and_what_lacks_is_added(
    granted: dict[str, str] | None, missing: int, remedy: tuple[str, str, str]
) -> None:
    found = await rights(granted)
    configure, write, read = remedy
    assert len(found.missing) == missing
    assert (found.configure, found.write, found.read) == (configure, write, read)
    assert (await rights({"configure": configure, "write": write, "read": read})).missing == []
