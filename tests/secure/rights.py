"""The rights that `docs/security.md` lists, given by its own commands on the servers of the tests."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

PASSWORD = "secret"
_DOCS = Path(__file__).parents[2] / "docs" / "security.md"
_TOOLS = {
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
}


def commands(server: str) -> list[str]:
    """The commands that the page lists for a server."""
    block = re.search(rf"<!-- rights: {server} -->\n```\n(.*?)\n```", _DOCS.read_text(), re.DOTALL)
    assert block, server
    return block[1].replace("\\\n", " ").splitlines()


def mongodb() -> tuple[str, list[dict[str, str]]]:
    """The user, and their roles."""
    [line] = commands("mongodb")
    found = re.search(r'user: "(\w+)".* roles: (\[.*\])', line)
    assert found
    return found[1], json.loads(re.sub(r"(\w+):", r'"\1":', found[2]))


def rabbitmq() -> list[tuple[str, dict[str, Any]]]:
    """Paths of the management API, and what to put there."""
    calls: list[tuple[str, dict[str, Any]]] = []
    for line in commands("rabbitmq"):
        match shlex.split(line)[1:]:
            case ["add_vhost", vhost]:
                calls.append((f"vhosts/{vhost}", {}))
            case ["add_user", user]:
                calls.append((f"users/{user}", {"password": PASSWORD, "tags": ""}))
            case ["set_permissions", "-p", vhost, user, configure, write, read]:
                patterns = {"configure": configure, "write": write, "read": read}
                calls.append((f"permissions/{vhost}/{user}", patterns))
            case other:
                raise ValueError(other)
    return calls


def postgresql(owner: str) -> list[str]:
    """The statements, with the name of who makes the tables."""
    return [line.replace("ROLE owner", f"ROLE {owner}") for line in commands("postgresql")]


def kafka(topic: str) -> list[list[str]]:
    """Calls of Kafka's tools; the last opens one more topic to callbacks."""
    calls = [shlex.split(line) for line in commands("kafka")]
    calls.append(["kafka-acls.sh", *callback_rights(), "--topic", topic])
    return [[_TOOLS[tool], *words, *(["--force"] if "acls" in tool else [])] for tool, *words in calls]


def callback_rights() -> list[str]:
    found = re.search(r"`callbacks\.topics` needs `([^`]+)`", _DOCS.read_text())
    assert found
    return ["--add", "--allow-principal", "User:carillon", *found[1].split()]
