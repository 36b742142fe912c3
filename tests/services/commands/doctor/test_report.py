"""Words of servers are shown by the doctor and never obeyed by the terminal; secrets are not shown."""

import json

import click
from msgspec.structs import replace

from services.commands.doctor.questions import (
    NOT_PASTED,
    Finding,
    Level,
    Subject,
    as_json,
    as_list,
    command,
    mask_secrets,
)
from shared.runtime.settings import Settings

HOSTILE = "\x1b[2Jown\x9b31m\u202eers\r\x07"
SHOWN = r"\x1b[2Jown\x9b31m\u202eers\r\x07"


def finding(name: str) -> Finding:
    return Finding(Level.FAULT, "RabbitMQ", "queues", f"the queue {name}\nis classic", command("rabbitmqctl", name))


def listed(name: str) -> str:
    server = Subject("RabbitMQ", (), lambda _: f"mq:5672, virtual host {HOSTILE}")
    return click.unstyle(as_list([finding(name)], [server], Settings(), 1))


def test_control_characters_of_servers_are_shown() -> None:
    shown = listed(HOSTILE)
    assert all(line.isprintable() for line in shown.split("\n")), shown
    assert f"virtual host {SHOWN}" in shown
    assert f"the queue {SHOWN} is classic" in shown


def test_a_remedy_is_pasted_if_all_of_it_is_printable() -> None:
    assert NOT_PASTED in listed(HOSTILE)
    assert "rabbitmqctl" not in listed(HOSTILE)
    assert finding("operators' Öwn").remedy in listed("operators' Öwn").split("\n")[-3]


def test_json_holds_the_very_text_in_printable_characters() -> None:
    line = as_json(finding(HOSTILE + "\U000e0001"))
    assert line.isprintable()
    assert json.loads(line)["sentence"] == f"the queue {HOSTILE}\U000e0001\nis classic"


def test_no_secret_is_ever_shown() -> None:
    settings = Settings()
    settings = replace(
        settings,
        store=replace(settings.store, url="mongodb://ana:mongo%2Fword@db/carillon"),
        blobs=replace(settings.blobs, access_key="access", secret_key="s3-secret-key"),
        api=replace(settings.api, proxy_secret="a-proxy-secret-word"),
        providers=replace(settings.providers, secret_keys="first-key=, second-key="),
    )
    told = "mongo/word mongo%2Fword s3-secret-key a-proxy-secret-word first-key= second-key= amqp://guest:hidden@mq"
    [masked] = mask_secrets([Finding(Level.FAULT, "x", "y", told, told)], settings)
    assert masked.sentence == masked.remedy == "*** *** *** *** *** *** amqp://guest:***@mq"
