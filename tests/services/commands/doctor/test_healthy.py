"""Of a house that is well the doctor finds nothing, and he leaves it as it was."""

import asyncio
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient

from services.commands.doctor.chosen import EXAMINATIONS
from tests.services.commands.doctor.patient import Patient, index_names

pytestmark = pytest.mark.native


async def test_all_is_well_and_stays_as_it_was(patient: Patient) -> None:
    await patient.live()
    before = await seen(patient)
    await patient.these_ills()
    assert await seen(patient) == before


async def test_every_question_to_these_servers_is_answered(patient: Patient) -> None:
    answered = {(finding.of, finding.check) for finding in await patient.examine()}
    asked = {(examination.of, question.name) for examination in EXAMINATIONS for question in examination.questions}
    assert {of for of, _ in asked - answered} == {"Folder of files", "Mail"}
    assert answered <= asked


async def seen(patient: Patient) -> dict[str, Any]:
    """All that there is on the servers, as others see it."""
    queues = await patient.administration.call("GET", f"queues/{patient.administration.vhost}?columns=name,type")
    policies = await patient.administration.call("GET", f"policies/{patient.administration.vhost}")
    return {
        "store": await asyncio.to_thread(index_names, patient.environment["CARILLON_STORE_URL"]),
        "queues": sorted(queue["name"] for queue in queues),
        "policies": policies,
        "topics": await topics(patient.stack.kafka_servers),
        "bucket": await objects(patient),
    }


async def topics(servers: str) -> dict[str, Any]:
    """The topics with their ends, but for Kafka's own; and the consumer groups."""
    client = AIOKafkaClient(bootstrap_servers=servers)
    await client.bootstrap()
    known = await client.fetch_all_metadata()
    names = {name: sorted(known.partitions_for_topic(name)) for name in known.topics() if not name.startswith("__")}
    await client.close()
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    groups = sorted(group for group, _ in await admin.list_consumer_groups())
    await admin.close()
    return {"partitions": names, "groups": groups}


async def objects(patient: Patient) -> Any:
    import aioboto3

    keys: dict[str, Any] = {"aws_access_key_id": "any", "aws_secret_access_key": "any", "region_name": "us-east-1"}
    bucket = patient.environment["CARILLON_BLOBS_URL"].removeprefix("s3://")
    async with aioboto3.Session(**keys).client("s3", endpoint_url=patient.stack.s3_url) as client:
        listed = await client.list_objects_v2(Bucket=bucket)
        uploads = await client.list_multipart_uploads(Bucket=bucket)
    return listed.get("Contents", []), uploads.get("Uploads", [])
