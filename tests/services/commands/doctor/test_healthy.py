"""Of a house that is well the doctor finds nothing, and he leaves it as it was."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient

from services.commands.doctor import SUBJECTS
from services.commands.doctor.questions import INIT
from tests.services.commands.doctor.patient import Patient, index_names

pytestmark = pytest.mark.native


@pytest.fixture
async def prefix(patient: Patient) -> AsyncIterator[str]:
    """Of the patient's topics and consumer groups: the broker is shared with other tests."""
    prefix = f"doctor{secrets.token_hex(4)}"
    patient.environment |= {
        "CARILLON_STREAM_TOPIC_TEMPLATE": f"{prefix}-%s_%s",
        "CARILLON_STREAM_LEDGER_TOPIC": f"{prefix}.ledger",
        "CARILLON_BUS_LOG_TOPIC": f"{prefix}.bus",
        "CARILLON_BUS_GROUP": f"{prefix}.bus",
        "CARILLON_FEEDBACK_GROUP": f"{prefix}.feedback",
    }
    await patient.take(INIT)
    yield prefix
    async with administrator(patient) as admin:
        await admin.delete_topics([f"{prefix}.ledger", f"{prefix}.bus"])


async def test_all_is_well_and_stays_as_it_was(patient: Patient, prefix: str) -> None:
    before = await seen(patient, prefix)
    assert len(before["topics"]) == 2
    await patient.these_ills()
    assert await seen(patient, prefix) == before


@pytest.mark.slow
async def test_every_question_to_these_servers_is_answered(patient: Patient) -> None:
    answered = {(finding.of, finding.check) for finding in await patient.examine()}
    asked = {(subject.name, question.name) for subject in SUBJECTS for question in subject.questions}
    assert asked - answered == {("Mail", "login")}
    assert answered <= asked


async def seen(patient: Patient, prefix: str) -> dict[str, Any]:
    """All that the patient has on the servers, as others see it."""
    queues = await patient.administration.call("GET", f"queues/{patient.administration.vhost}?columns=name,type")
    policies = await patient.administration.call("GET", f"policies/{patient.administration.vhost}")
    return {
        "store": await asyncio.to_thread(index_names, patient.environment["CARILLON_STORE_URL"]),
        "queues": sorted(queue["name"] for queue in queues),
        "policies": policies,
        "topics": await topics(patient.stack.kafka_servers, prefix),
        "groups": await groups(patient, prefix),
        "bucket": await objects(patient),
    }


async def topics(servers: str, prefix: str) -> dict[str, Any]:
    """The partitions of each topic."""
    client = AIOKafkaClient(bootstrap_servers=servers)
    await client.bootstrap()
    known = await client.fetch_all_metadata()
    found = {name: sorted(known.partitions_for_topic(name)) for name in known.topics() if name.startswith(prefix)}
    await client.close()
    return found


async def groups(patient: Patient, prefix: str) -> list[str]:
    async with administrator(patient) as admin:
        return sorted(group for group, _ in await admin.list_consumer_groups() if group.startswith(prefix))


@asynccontextmanager
async def administrator(patient: Patient) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=patient.stack.kafka_servers)
    await admin.start()
    yield admin
    await admin.close()


async def objects(patient: Patient) -> Any:
    import aioboto3

    keys: dict[str, Any] = {"aws_access_key_id": "any", "aws_secret_access_key": "any", "region_name": "us-east-1"}
    bucket = patient.environment["CARILLON_BLOBS_URL"].removeprefix("s3://")
    async with aioboto3.Session(**keys).client("s3", endpoint_url=patient.stack.s3_url) as client:
        listed = await client.list_objects_v2(Bucket=bucket)
        uploads = await client.list_multipart_uploads(Bucket=bucket)
    return listed.get("Contents", []), uploads.get("Uploads", [])
