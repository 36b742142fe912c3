"""`POST /apps/{id}/jobs/preview` over HTTP: it tells what a job would do, and leaves no trace."""

import asyncio
from typing import Any

import asyncpg
import pytest

from services.api.push import preview as api_preview
from shared.audience.rules.zones import zones
from shared.drivers.postgres import Audience
from shared.jobs.rules.jobs import SPLIT_QUEUE
from shared.runtime.server_settings import StreamSettings
from shared.runtime.settings import ApiSettings, WorkerSettings
from tests.services.api.client import ADMIN, Client, Reply
from tests.services.api.conftest import House, _execute
from tests.services.api.push.conftest import over

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

JOB = {"service": "apns", "context": {"user": "Ana"}, "metadata": {"campaign": "x"}}
SECOND = 1_000_000_000
HOUR = 3_600 * SECOND


async def ask(client: Client, app_id: str, template: str = "like", /, **changes: Any) -> Reply:
    return await client.post(f"/apps/{app_id}/jobs/preview?template={template}", JOB | changes)


def codes(reply: Reply) -> list[str]:
    return [warning["code"] for warning in reply.json["warnings"]]


async def test_a_preview_tells_the_audience_the_records_and_what_to_look_at(house: House, crowded: Client) -> None:
    app_id = await house.app_with_template()
    portuguese = {"name": "like", "locale": "pt", "body": {"alert": "{{no}}!"}, "defaults": {"no": None}}
    await house.admin.post(f"/apps/{app_id}/templates", portuguese)

    reply = await ask(crowded, app_id)

    assert reply.status == 200, reply.body
    assert reply.json["topic"] == "push-game_apns-massive"
    assert reply.json["audience"] == {
        "exact": True, "devices": 1200, "users": 600, "estimatedDevices": 1200, "estimatedUsers": 600,
        "withoutToken": 0, "unknown": 0, "repeated": 0, "heldOutUsers": 0,
        "zones": [{"tz": tz, "devices": 300} for tz in (None, "+0000", "+0545", "-0000")],
        "locales": [{"locale": locale, "devices": 300} for locale in (None, "PT", "en", "fr")],
    }  # fmt: skip
    assert reply.json["zones"] == []
    english, portuguese = reply.json["samples"]
    assert (english["templateName"], english["locale"], english["devices"]) == ("like", "en", 900)
    assert english["record"]["Payload"] == {
        "aps": {"alert": "Ana likes it"},
        "m": {"campaign": "x"},
        "templateName": "like",
    }
    assert english["bytes"] == reply.json["largestRecordBytes"] > portuguese["bytes"] > 0
    assert (portuguese["locale"], portuguese["record"]["Payload"]["aps"]) == ("pt", {"alert": "!"})
    assert reply.json["maxRecordBytes"] == 1_000_000
    assert codes(reply) == ["english-used", "tag-without-value"]


async def test_a_tag_that_nothing_fills_is_refused_and_named(house: House) -> None:
    app_id = await house.app_with_template()
    typo = {"name": "typo", "locale": "en", "body": {"alert": "{{nmae}}"}, "defaults": {"city": "Rome"}}
    assert (await house.admin.post(f"/apps/{app_id}/templates", typo)).status == 201
    marathons = over(house, house.audience, ApiSettings(first_admin=ADMIN, lenient_jobs=True))
    for path in ("jobs/preview", "jobs"):
        posted = f"/apps/{app_id}/{path}?template=typo"
        refused = await house.admin.post(posted, JOB | {"context": {"name": "Ana"}})
        assert (refused.status, refused.json["field"]) == (422, "context")
        assert refused.json["reason"].endswith("have no value for {{nmae}}; did you mean name?")
        assert (await marathons.post(posted, JOB | {"context": {"name": "Ana"}})).status in {200, 201}
    empty = JOB | {"context": {"nmae": None}}
    assert (await house.admin.post(f"/apps/{app_id}/jobs?template=typo", empty)).status == 201


async def test_nobodys_token_or_id_leaves(house: House, crowded: Client) -> None:
    reply = await ask(crowded, await house.app_with_template())
    assert b"secret-" not in reply.body
    assert b"user-" not in reply.body


async def test_nothing_is_stored_and_nothing_published(house: House, crowded: Client) -> None:
    app_id = await house.app_with_template()
    before = await house.broker.depth(SPLIT_QUEUE)
    wanted = "6e1d6e0c-0000-4000-8000-000000000001"
    for changes in ({"id": wanted}, {"id": wanted, "startsAt": house.clock.now_ns() + HOUR}):
        assert (await ask(crowded, app_id, **changes)).status == 200
    assert (await house.admin.get(f"/apps/{app_id}/jobs")).json == []
    assert (await house.admin.get(f"/apps/{app_id}/jobs/{wanted}")).status == 404
    assert await house.broker.depth(SPLIT_QUEUE) == before


async def test_filters_keep_who_they_keep_for_the_job(house: House, crowded: Client) -> None:
    client, app_id = crowded, await house.app_with_template()
    some = await ask(client, app_id, filters={"locale": "en,PT", "NOTtz": "-0000"})
    assert (some.json["audience"]["devices"], some.json["audience"]["exact"]) == (300, True)
    nobody = await ask(client, app_id, filters={"locale": "xx"})
    assert nobody.json["audience"]["devices"] == 0
    assert codes(nobody) == ["nobody"]
    assert nobody.json["samples"][0]["devices"] == 0


async def test_a_localized_job_is_shown_with_its_zones_that_have_devices(house: House, crowded: Client) -> None:
    client, app_id = crowded, await house.app_with_template()
    starts_at = house.clock.now_ns() + 15 * HOUR
    reply = await ask(client, app_id, localized=True, startsAt=starts_at, expiresAt=starts_at + 3 * HOUR)
    assert reply.status == 200, reply.body
    group = {zone["zone"]: zone for zone in reply.json["zones"]}
    assert list(group) == ["+0000", "+0545", "rest"]
    assert group["+0545"] == {"zone": "+0545", "startsAt": starts_at - 5 * HOUR - HOUR * 3 // 4, "devices": 300}
    assert group["+0000"] == {"zone": "+0000", "startsAt": starts_at, "devices": 600}
    assert group["rest"] == {"zone": "rest", "startsAt": starts_at, "devices": 300}
    assert "zone-expired" not in codes(reply), "only zones without devices start so late"

    soon = house.clock.now_ns() + 3 * SECOND
    skipped = await ask(client, app_id, localized=True, startsAt=soon, pastTimeStrategy="skip")
    assert "+0545" not in {zone["zone"] for zone in skipped.json["zones"]}
    [warning] = [each for each in skipped.json["warnings"] if each["code"] == "zone-skipped"]
    assert "300 devices" in warning["message"]


async def test_devices_without_a_zone_are_named_in_the_preview_of_a_localized_job(
    house: House, own_crowd: Audience, push_database: str
) -> None:
    texts = ["+1215", "Asia/Tokyo", "UTC+12", "soon", "", "+25:99"]
    named = ", ".join(f"'{text}'" for text in texts)
    await _execute(push_database, f"UPDATE game_apns SET tz = (ARRAY[{named}])[1 + seq_id % 6] WHERE seq_id < 600")
    await _execute(push_database, "UPDATE game_apns SET tz = NULL WHERE seq_id >= 600")
    client, app_id = over(house, own_crowd), await house.app_with_template()
    reply = await ask(client, app_id, localized=True, startsAt=house.clock.now_ns() + 15 * HOUR)
    assert {zone["zone"]: zone["devices"] for zone in reply.json["zones"]} == {"+0900": 100, "+1200": 200, "rest": 900}
    [warning] = [each["message"] for each in reply.json["warnings"] if each["code"] == "zone-unknown"]
    assert warning.startswith(
        "900 devices are in the zone rest, which starts with UTC, because tz names no time zone: none, '"
    )
    assert warning.count(",") == 4
    assert "zone-unknown" not in codes(await ask(client, app_id))


async def test_a_large_record_is_measured_and_not_shown(house: House) -> None:
    app_id = await house.app()
    body = {"alert": {str(number): "x" * 60_000 for number in range(15)}}
    made = await house.admin.post(f"/apps/{app_id}/templates", {"name": "big", "locale": "en", "body": body})
    assert made.status == 201, made.body
    reply = await ask(over(house, house.audience), app_id, "big")
    [sample] = reply.json["samples"]
    assert (sample["record"], sample["failure"]) == (None, "")
    assert sample["bytes"] == reply.json["largestRecordBytes"] > 900_000
    assert codes(reply) == []


async def test_a_record_that_only_its_device_makes_too_large_is_noticed(house: House) -> None:
    app_id = await house.app()
    body = {"alert": "x" * 1_900}
    await house.admin.post(f"/apps/{app_id}/templates", {"name": "big", "locale": "en", "body": body})
    client = over(house, house.audience, StreamSettings(max_record_bytes=2_000))
    reply = await ask(client, app_id, "big")
    assert reply.json["largestRecordBytes"] > 2_000
    assert codes(reply) == ["too-large"]


async def test_what_a_template_would_make_too_large_is_refused_and_never_made(house: House) -> None:
    """800 MiB of text from 65 kB and a value of 64 KiB: by the job, by its preview, and by the template itself."""
    app_id = await house.app()
    bomb = {"name": "bomb", "locale": "en", "body": {"alert": "{{a}}" * 13_000}}
    assert (await house.admin.post(f"/apps/{app_id}/templates", bomb)).status == 201
    job = {"service": "apns", "context": {"a": "x" * 65_536}}
    for path in ("jobs", "jobs/preview"):
        reply = await house.admin.post(f"/apps/{app_id}/{path}?template=bomb", job)
        assert (reply.status, reply.json["field"]) == (422, "template"), path
        assert "'bomb' in 'en' makes records of 851,968,012 bytes or more, 1,000,000 are" in reply.json["reason"]
    assert (await house.admin.post(f"/apps/{app_id}/jobs?template=bomb", job | {"context": {"a": "x"}})).status == 201

    filled = bomb | {"name": "filled", "defaults": job["context"]}
    made = await house.admin.post(f"/apps/{app_id}/templates", filled)
    assert (made.status, made.json["field"]) == (422, "body")
    several = await house.admin.post(f"/apps/{app_id}/templates?multiple=true", [filled])
    assert (several.status, several.json["field"]) == (422, "body")
    listed = (await house.admin.get(f"/apps/{app_id}/templates")).json
    changed = await house.admin.put(f"/apps/{app_id}/templates/{listed[0]['id']}", filled)
    assert (changed.status, changed.json["field"]) == (422, "body")
    assert [each["name"] for each in listed] == ["bomb"]


async def test_many_large_samples_are_measured_and_only_the_first_are_made(house: House) -> None:
    app_id = await house.app()
    templates = [
        {"name": "many", "locale": locale, "body": {"alert": "{{a}}" * 15}}
        for locale in ("en", *(f"l{number}" for number in range(200)))
    ]
    made = await house.admin.post(f"/apps/{app_id}/templates?multiple=true", templates)
    assert made.status == 201, made.body
    reply = await ask(over(house, house.audience), app_id, "many", context={"a": "x" * 60_000})
    assert reply.status == 200, reply.body
    assert len(reply.json["samples"]) == 20
    assert 900_000 < reply.json["largestRecordBytes"] < 902_000


async def test_records_are_made_by_the_rules_of_the_workers(house: House) -> None:
    app_id = await house.app_with_template()
    worker, stream = WorkerSettings(push_expiry_unit="seconds"), StreamSettings(topic_template="%s.%s")
    client = over(house, house.audience, worker, stream)
    expires_at = house.clock.now_ns() + HOUR
    reply = await ask(client, app_id, expiresAt=expires_at)
    assert reply.json["topic"] == "game.apns"
    assert reply.json["samples"][0]["record"]["push_expiry"] == expires_at // SECOND


async def test_an_audience_that_cannot_be_counted_in_time_is_told_as_far_as_it_was(
    house: House, crowd: Audience, crowd_url: str
) -> None:
    """Whoever holds a lock on the table makes the count wait; the checks came before."""
    app_id = await house.app_with_template()
    client = over(house, _Locking(crowd, crowd_url), ApiSettings(first_admin=ADMIN, preview_seconds=0.2))
    reply = await ask(client, app_id)
    assert reply.status == 200, reply.body
    audience = reply.json["audience"]
    assert (audience["exact"], audience["devices"], audience["estimatedDevices"]) == (False, 0, None)
    assert "nobody" not in codes(reply)
    localized = await ask(client, app_id, localized=True, startsAt="2126-12-24T09:00:00")
    assert [zone["zone"] for zone in localized.json["zones"]] == list(zones()), "any may have devices"


class _Locking:
    """The same audience, whose table is locked by somebody else while it is counted."""

    def __init__(self, audience: Audience, url: str) -> None:
        self._audience = audience
        self._url = url

    def __getattr__(self, name: str) -> Any:
        return getattr(self._audience, name)

    async def count(self, *args: Any, **kwargs: Any) -> Any:
        other = await asyncpg.connect(self._url)
        try:
            async with other.transaction():
                await other.execute("LOCK TABLE game_apns IN ACCESS EXCLUSIVE MODE")
                return await self._audience.count(*args, **kwargs)
        finally:
            await other.close()


class _Held:
    """The same audience, whose counts wait until they are let go."""

    def __init__(self, audience: Audience) -> None:
        self._audience = audience
        self.counting = asyncio.Semaphore(0)
        self.go = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._audience, name)

    async def count(self, *args: Any, **kwargs: Any) -> Any:
        self.counting.release()
        await self.go.wait()
        return await self._audience.count(*args, **kwargs)


async def test_only_a_few_are_made_at_a_time(house: House) -> None:
    app_id = await house.app_with_template()
    held = _Held(house.audience)
    client = over(house, held, ApiSettings(first_admin=ADMIN, preview_seconds=0.2))
    others = [await service(house, client, app_id) for _ in range(api_preview.AT_ONCE)]
    first = [asyncio.create_task(ask(other, app_id)) for other in others]
    for _ in first:
        await held.counting.acquire()
    refused = await ask(client, app_id)
    assert (refused.status, refused.headers["retry-after"]) == (503, "2")
    held.go.set()
    assert [(await each).status for each in first] == [200] * api_preview.AT_ONCE
    assert (await ask(client, app_id)).status == 200


async def test_one_caller_does_not_shut_out_the_others(house: House) -> None:
    app_id = await house.app_with_template()
    held = _Held(house.audience)
    client = over(house, held, ApiSettings(first_admin=ADMIN, preview_seconds=0.2))
    greedy, other = [await service(house, client, app_id) for _ in range(2)]
    first = asyncio.create_task(ask(greedy, app_id))
    await held.counting.acquire()
    assert [(await ask(greedy, app_id)).status for _ in range(2)] == [503, 503]
    second = asyncio.create_task(ask(other, app_id))
    await held.counting.acquire()
    held.go.set()
    assert [(await first).status, (await second).status] == [200, 200]
    assert (await ask(greedy, app_id)).status == 200


async def service(house: House, client: Client, app_id: str) -> Client:
    """The same API, asked with a token of its own."""
    made = await house.admin.post("/tokens", {"name": "t", "allowedApps": [app_id]})
    return client.service(made.json["token"])


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"service": "sms"}, "service"),
        ({"expiresAt": 1}, "expiresAt"),
        ({"startsAt": 1}, "startsAt"),
        ({"controlGroup": 1}, "controlGroup"),
        ({"filters": {"a": "b"}, "csvPath": "b/k"}, "filters"),
        ({"csvPath": "s3://b/k"}, "csvPath"),
        ({"filters": {"nothere": "b"}}, "filters.nothere"),
        ({"filters": {"locale": 5}}, "filters.locale"),
        ({"localized": True}, "localized"),
        ({"localized": True, "startsAt": 10**18, "pastTimeStrategy": "later"}, "pastTimeStrategy"),
        ({"localized": True, "startsAt": 10**18, "pastTimeStrategy": "skip"}, "startsAt"),
        ({"context": {"a": "\0"}}, "context.a"),
    ],
)
async def test_what_a_job_may_not_be_a_preview_may_not_be(house: House, changes: Any, field: str) -> None:
    reply = await ask(house.admin, await house.app_with_template(), **changes)
    assert (reply.status, reply.json["field"]) == (422, field)


async def test_the_app_and_the_template_must_be_there(house: House) -> None:
    app_id = await house.app_with_template()
    for path, status, field in (
        (f"/apps/{app_id}/jobs/preview", 422, "template"),
        (f"/apps/{app_id}/jobs/preview?template=other", 422, "template"),
        ("/apps/6e1d6e0c-0000-4000-8000-000000000001/jobs/preview?template=like", 404, "appId"),
    ):
        reply = await house.admin.post(path, JOB)
        assert (reply.status, reply.json["field"]) == (status, field)


async def test_whoever_may_not_post_a_job_may_not_preview_one(house: House) -> None:
    mine, other = await house.app_with_template(), await house.app_with_template()
    token = (await house.admin.post("/tokens", {"name": "t", "allowedApps": [mine]})).json["token"]
    service = house.admin.service(token)
    assert (await ask(service, mine)).status == 200
    assert (await ask(service, other)).status == 403
    assert (await ask(Client(house.admin.app), mine)).status == 401


async def test_the_document_describes_the_route(house: House) -> None:
    described = (await house.admin.get("/openapi.json")).json
    operation = described["paths"]["/apps/{appId}/jobs/preview"]["post"]
    assert operation["operationId"] == "previewJob"
    assert operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].endswith("/JobPreview")
    assert {"404", "409", "422", "503"} <= operation["responses"].keys()
    fields = described["components"]["schemas"]["JobPreview"]["properties"].keys()
    app_id = await house.app_with_template()
    assert (await ask(house.admin, app_id)).json.keys() == fields
