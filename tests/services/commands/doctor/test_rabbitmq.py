"""What the doctor finds of RabbitMQ, and that it heals."""

import asyncio
import secrets
from urllib.parse import urlsplit

import aio_pika
import pytest

from services.commands.doctor.findings import Finding, Level
from tests.services.commands.doctor.patient import Patient
from tests.waiting import until

pytestmark = pytest.mark.native

QUEUE = "push.mail"
QUEUES = (Level.FAULT, "RabbitMQ", "queues")
POLICIES = (Level.FAULT, "RabbitMQ", "policies")
BINDINGS = (Level.FAULT, "RabbitMQ", "bindings")


async def test_what_init_makes_is_missing(patient: Patient) -> None:
    vhost = patient.administration.vhost
    await patient.administration.delete_queue(f"{QUEUE}.dlq")  # and with it its binding
    await patient.administration.call("DELETE", f"policies/{vhost}/push.batch")
    queues, policies, bindings = await patient.heal(QUEUES, POLICIES, BINDINGS)
    assert queues.sentence == f"missing: {QUEUE}.dlq"
    assert "push.batch" in policies.sentence
    assert QUEUE in bindings.sentence

    async with await aio_pika.connect(patient.environment["CARILLON_BROKER_URL"]) as connection:
        channel = await connection.channel()
        dead = await channel.get_queue(f"{QUEUE}.dlq")
        await dead.unbind("carillon.dead", routing_key=QUEUE)
    await patient.heal(BINDINGS)


@pytest.mark.slow
async def test_a_policy_of_others_that_wins(patient: Patient) -> None:
    vhost = patient.administration.vhost
    catch_all = {"pattern": ".*", "definition": {"max-length": 1000}, "apply-to": "all"}
    await patient.administration.call("PUT", f"policies/{vhost}/operators%20own", catch_all | {"priority": 5})
    await patient.these_ills()  # ours has a higher priority

    await patient.administration.call("PUT", f"policies/{vhost}/operators%20own", catch_all | {"priority": 50})
    [ill] = await patient.heal(POLICIES)
    assert ill.remedy == f"rabbitmqctl clear_policy -p {vhost} 'operators own' && carillon init"


@pytest.mark.slow
async def test_a_queue_of_another_type(patient: Patient) -> None:
    name = f"{QUEUE}.dlq"
    await patient.administration.delete_queue(name)
    async with await aio_pika.connect(patient.environment["CARILLON_BROKER_URL"]) as connection:
        channel = await connection.channel()
        classic = await channel.declare_queue(name, durable=True)
        await classic.bind("carillon.dead", routing_key=QUEUE)
    # The management API has known the queue before, and looks again a little later.
    await until(lambda: _has_type_fault(patient), "the queue to be known as a classic one")
    [ill] = await patient.heal((Level.FAULT, "RabbitMQ", "types"))
    assert f"{name} is classic" in ill.sentence


async def _has_type_fault(patient: Patient) -> bool:
    return any(ill.check == "types" for ill in await patient.ills())


async def test_queues_that_nobody_takes_from(patient: Patient) -> None:
    await patient.parts.capabilities.broker.close()
    ill = await patient.one_ill(Level.WARNING, "RabbitMQ", "consumers")
    assert ill.remedy == "carillon worker"
    ports = {"CARILLON_API_PORT": "0", "CARILLON_HEALTH_PORT": "0"}
    worker = await asyncio.create_subprocess_shell(
        f"exec {ill.remedy}",
        env={**patient.environment, **ports, "PATH": patient.shell.path},
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        # What the worker tells of itself is of another version than what the test's processes tell.
        await until(lambda: _has_consumers(patient), "the worker to take from its queues")
    finally:
        worker.kill()
        await asyncio.wait_for(worker.wait(), 50)


async def _has_consumers(patient: Patient) -> bool:
    return not any(ill.check == "consumers" for ill in await patient.ills())


async def test_a_virtual_host_that_is_missing(patient: Patient) -> None:
    url = patient.environment["CARILLON_BROKER_URL"]
    patient.environment["CARILLON_BROKER_URL"] = f"{url}_new"
    try:
        ill = await patient.one_ill(Level.FAULT, "RabbitMQ", "login")
        await patient.take(ill.remedy)
        await patient.these_ills((Level.WARNING, "RabbitMQ", "consumers"))
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
        ill = await patient.one_ill(Level.FAULT, "RabbitMQ", "login")
        assert password not in str(ill)
        await patient.take(ill.remedy, its_password=password)
        [ill] = await patient.heal((Level.FAULT, "RabbitMQ", "rights"))
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
        await patient.heal((Level.WARNING, "RabbitMQ", "rights"), (Level.WARNING, "RabbitMQ", "alarms"))
        patient.environment["CARILLON_BROKER_MANAGEMENT_URL"] = f"http://{user}:wrong@{url.hostname}:{url.port}"
        await patient.these_ills((Level.FAULT, "RabbitMQ's management", "login"))
    finally:
        await patient.administration.call("DELETE", f"users/{user}")


@pytest.mark.kills_servers
async def test_alarms(patient: Patient) -> None:
    try:
        patient.shell.type("rabbitmqctl set_vm_memory_high_watermark absolute 1MB", patient.environment)
        ill = await eventual_ill(patient, "alarms")
        assert "is short of memory" in ill.sentence
    finally:
        patient.shell.type("rabbitmqctl set_vm_memory_high_watermark absolute 2GB", patient.environment)
    await patient.these_ills()


async def eventual_ill(patient: Patient, check: str) -> Finding:
    found: list[Finding] = []

    async def is_found() -> bool:
        found[:] = [ill for ill in await patient.ills() if ill.check == check]
        return bool(found)

    await until(is_found, check)
    return found[0]


async def test_without_management_the_rest_is_still_asked(patient: Patient) -> None:
    patient.environment["CARILLON_BROKER_MANAGEMENT_URL"] = "http://guest:guest@127.0.0.1:9"
    ill = await patient.one_ill(Level.FAULT, "RabbitMQ's management", "address")
    assert "connection refused" in ill.sentence
