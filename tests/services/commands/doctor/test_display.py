"""What servers say is shown by the doctor, and never obeyed by the terminal."""

import json

import click

from services.commands.doctor.display import NOT_PASTED, as_json, as_list
from services.commands.doctor.examination import Examination
from services.commands.doctor.findings import Finding, Level
from services.commands.doctor.shell import command

HOSTILE = "\x1b[2Jown\x9b31m\u202eers\r\x07"
SHOWN = r"\x1b[2Jown\x9b31m\u202eers\r\x07"


class HostileServer(Examination):
    of = "RabbitMQ"
    where = f"mq:5672, virtual host {HOSTILE}"


def finding(name: str) -> Finding:
    remedy = command("rabbitmqctl", "clear_policy", name)
    return Finding(Level.FAULT, "RabbitMQ", "policies", f"the policy {name}\ndisplaces ours", remedy)


def test_control_characters_of_servers_are_shown() -> None:
    listed = click.unstyle(as_list([finding(HOSTILE)], [HostileServer()], 1))
    assert all(line.isprintable() for line in listed.split("\n")), listed
    assert f"virtual host {SHOWN}" in listed
    assert f"the policy {SHOWN} displaces ours" in listed


def test_a_remedy_is_pasted_where_all_of_it_is_printable() -> None:
    assert NOT_PASTED in as_list([finding(HOSTILE)], [], 1)
    assert "clear_policy" not in as_list([finding(HOSTILE)], [], 1)
    listed = click.unstyle(as_list([finding("operators' Öwn")], [], 1))
    assert finding("operators' Öwn").remedy in listed.split("\n")[-3]
    assert NOT_PASTED not in listed


def test_json_holds_the_very_text_in_printable_characters() -> None:
    line = as_json(finding(HOSTILE + "\U000e0001"))
    assert line.isprintable()
    assert json.loads(line)["sentence"] == f"the policy {HOSTILE}\U000e0001\ndisplaces ours"
