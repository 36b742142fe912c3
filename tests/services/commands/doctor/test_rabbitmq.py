"""Faults of RabbitMQ that are made on purpose, found, and mended by the remedies."""

import secrets
from urllib.parse import urlsplit

import aio_pika
import pytest

from services.commands.doctor.questions import Level
from tests.services.commands.doctor.patient import Patient

pytestmark = [pytest.mark.faulty_server, pytest.mark.native]

QUEUE = "push.mail"
QUEUES = (Level.FAULT, "RabbitMQ", "queues")
MANAGEMENT = "RabbitMQ's management"


async def test_a_queue_that_is_missing(patient: Patient) -> None:
    await patient.administration.delete_queue(QUEUE)
    [ill] = await patient.heal(QUEUES)
    assert ill.sentence == f"missing: {QUEUE}"


@pytest.mark.slow
async def test_a_queue_of_another_type(patient: Patient) -> None:
    await patient.administration.delete_queue(QUEUE)
    async with await aio_pika.connect(patient.environment["CARILLON_BROKER_URL"]) as connection:
        await (await connection.channel()).declare_queue(QUEUE, durable=True)
    # The management API has known the queue before, and looks again a little later.
    [ill] = await patient.heal(QUEUES)
    assert f"{QUEUE} is classic" in ill.sentence


async def test_a_virtual_host_that_is_missing(patient: Patient) -> None:
    url = patient.environment["CARILLON_BROKER_URL"]
    patient.environment["CARILLON_BROKER_URL"] = f"{url}_new"
    try:
        [ill] = await patient.these_ills((Level.FAULT, "RabbitMQ", "login"))
        await patient.take(ill.remedy)
        await patient.these_ills()
    finally:
        await patient.administration.call("DELETE", f"vhosts/{patient.administration.vhost}_new")


async def test_a_user_with_another_password_and_with_too_few_rights(patient: Patient) -> None:
    user, password = f"user{secrets.token_hex(4)}", secrets.token_hex(8)
    call, vhost = patient.administration.call, patient.administration.vhost
    await call("PUT", f"users/{user}", {"password": "another one", "tags": ""})
    await call("PUT", f"permissions/{vhost}/{user}", {"configure": "", "write": ".*", "read": "^push"})
    url = urlsplit(patient.environment["CARILLON_BROKER_URL"])
    patient.environment["CARILLON_BROKER_URL"] = url._replace(
        netloc=f"{user}:{password}@{url.hostname}:{url.port}"
    ).geturl()
    try:
        [ill] = await patient.these_ills((Level.FAULT, "RabbitMQ", "login"))
        assert password not in str(ill)
        await patient.take(ill.remedy, its_password=password)
        [ill] = await patient.heal((Level.FAULT, MANAGEMENT, "rights"))
        assert "read on bus.deliver" in ill.sentence
        assert "push" not in ill.sentence
        assert ill.remedy.endswith(
            f" {user} '^$' '.*' '^push|^((push|sched|carillon|bus)\\..*|ops\\.bulk.*|message\\.(batch|single).*)$'"
        )
    finally:
        await call("DELETE", f"users/{user}")


async def test_a_manager_who_may_not_ask_for_all(patient: Patient) -> None:
    user, vhost = f"user{secrets.token_hex(4)}", patient.administration.vhost
    await patient.administration.call("PUT", f"users/{user}", {"password": "managing", "tags": "management"})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    await patient.administration.call("PUT", f"permissions/{vhost}/{user}", everything)
    url = urlsplit(patient.stack.rabbit_management_url)
    patient.environment["CARILLON_BROKER_MANAGEMENT_URL"] = f"http://{user}:managing@{url.hostname}:{url.port}"
    try:
        await patient.heal((Level.WARNING, MANAGEMENT, "rights"), (Level.WARNING, MANAGEMENT, "alarms"))
        patient.environment["CARILLON_BROKER_MANAGEMENT_URL"] = f"http://{user}:wrong@{url.hostname}:{url.port}"
        await patient.these_ills((Level.FAULT, MANAGEMENT, "login"))
    finally:
        await patient.administration.call("DELETE", f"users/{user}")


@pytest.mark.kills_servers
async def test_alarms(patient: Patient) -> None:
    try:
        patient.shell.type("rabbitmqctl set_vm_memory_high_watermark absolute 1MB", patient.environment)
        [ill] = await patient.these_ills((Level.FAULT, MANAGEMENT, "alarms"))
        assert "is short of memory" in ill.sentence
    finally:
        patient.shell.type("rabbitmqctl set_vm_memory_high_watermark absolute 2GB", patient.environment)
    await patient.these_ills()


async def test_without_management_the_rest_is_still_asked(patient: Patient) -> None:
    patient.environment["CARILLON_BROKER_MANAGEMENT_URL"] = "http://guest:guest@127.0.0.1:9"
    [ill] = await patient.these_ills((Level.FAULT, MANAGEMENT, "login"))
    assert "connection refused" in ill.sentence
