"""Previews of jobs over files: who of the file would get it, as far as it can be looked up in time, and no trace."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import asyncpg
import pytest

from shared.audience.rules.audiences import File
from shared.audience.rules.csv_cuts import HEADER_IS_DATA
from shared.drivers.blobs import Blobs
from shared.drivers.blobs.s3 import S3Blobs
from shared.drivers.postgres import Audience
from shared.jobs.rules.jobs import SPLIT_QUEUE
from shared.runtime.settings import ApiSettings
from tests.drivers.blobs.owners import BucketOwner
from tests.services.api.client import ADMIN, Client
from tests.services.api.conftest import House
from tests.services.api.push.conftest import over
from tests.services.api.push.test_preview import HOUR, ask, codes
from tests.stack import Endpoints

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

SMALL = b'id,n\r\nuser-0,1\r\nuser-1,2\r\nstranger,3\r\n\r\nuser-0,4\r\n"user-3",5'


def lines(*users: object) -> bytes:
    return b"id\n" + b"".join(b"%s\n" % str(user).encode() for user in users)


async def test_the_users_of_a_file_are_looked_up(house: House, crowded: Client) -> None:
    app_id, path = await house.app_with_template(), await house.file("users.csv", SMALL)
    reply = await ask(crowded, app_id, csvPath=path)
    assert reply.status == 200, reply.body
    assert reply.json["audience"] == {
        "exact": True, "devices": 6, "users": 3, "estimatedDevices": 6, "estimatedUsers": 3,
        "withoutToken": 0, "unknown": 1, "repeated": 1, "heldOutUsers": 0,
        "zones": [{"tz": tz, "devices": n} for tz, n in ((None, 2), ("+0545", 2), ("+0000", 1), ("-0000", 1))],
        "locales": [{"locale": locale, "devices": n} for locale, n in ((None, 2), ("fr", 2), ("PT", 1), ("en", 1))],
    }  # fmt: skip
    assert reply.json["fileBytes"] == len(SMALL)
    [sample] = reply.json["samples"]
    assert (sample["devices"], sample["record"]["Payload"]["aps"]) == (6, {"alert": "Ana likes it"})
    assert codes(reply) == ["unknown-users", "no-index", "english-used"]
    assert b"secret-" not in reply.body
    assert b"user-" not in reply.body


async def test_a_file_of_many_slices_and_repeats_is_counted_to_its_end(house: House, crowded: Client) -> None:
    rows = [f"user-{number % 700}" for number in range(14_000)]
    path = await house.file("many.csv", lines(*rows))
    reply = await ask(crowded, await house.app_with_template(), csvPath=path)
    audience = reply.json["audience"]
    assert (audience["exact"], audience["devices"], audience["users"]) == (True, 1_200, 600)
    assert (audience["unknown"], audience["repeated"]) == (100, 13_300)


async def test_a_localized_job_over_a_file_is_shown_with_the_devices_of_its_zones(
    house: House, crowded: Client
) -> None:
    app_id, path = await house.app_with_template(), await house.file("zones.csv", SMALL)
    starts_at = house.clock.now_ns() + 15 * HOUR
    reply = await ask(crowded, app_id, csvPath=path, localized=True, startsAt=starts_at)
    assert reply.status == 200, reply.body
    devices = {zone["zone"]: zone["devices"] for zone in reply.json["zones"]}
    assert devices == {"+0000": 2, "+0545": 2, "rest": 2}


async def test_nothing_is_stored_of_a_file(house: House, crowded: Client) -> None:
    app_id, path = await house.app_with_template(), await house.file("traceless.csv", SMALL)
    before, queued = await documents(house), await house.broker.depth(SPLIT_QUEUE)
    starts_at = house.clock.now_ns() + 15 * HOUR
    for changes in ({}, {"localized": True, "startsAt": starts_at}, {"controlGroup": 0.5}):
        assert (await ask(crowded, app_id, csvPath=path, **changes)).status == 200
    assert await documents(house) == before
    assert await house.broker.depth(SPLIT_QUEUE) == queued


async def documents(house: House) -> dict[str, int]:
    database = house.store._database
    return {name: await database[name].count_documents({}) for name in house.store._aggregates}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"id,n\nuser-0,1\nuser-1\n", "line 3"),
        (b'id\nuser-0\n"user-1\nuser-2\n', "line 3"),
        (b"id\nuser-0\nu\0\n", "line 3"),
        (b"id\nuser-0\n\xff\n", "line 3"),
        (b"id\n", "no rows behind it"),
        (b"\xef\xbb\xbf\n", "empty"),
    ],
)
async def test_a_file_over_which_a_job_would_fail_is_a_warning(
    house: House, crowded: Client, content: bytes, told: str
) -> None:
    app_id, path = await house.app_with_template(), await house.file("broken.csv", content)
    starts_at = house.clock.now_ns() + 15 * HOUR
    reply = await ask(crowded, app_id, csvPath=path, localized=True, startsAt=starts_at)
    assert reply.status == 200, reply.body
    assert (reply.json["audience"], reply.json["fileBytes"]) == (None, len(content))
    assert {zone["devices"] for zone in reply.json["zones"]} == {None}
    [warning] = reply.json["warnings"]
    assert warning["code"] == "bad-file"
    assert told in warning["message"]
    refused = await house.admin.post(f"/apps/{app_id}/jobs?template=like", {"service": "apns", "csvPath": path})
    assert (refused.status, refused.json["field"], told in refused.json["reason"]) == (422, "csvPath", True)
    assert (await house.admin.get(f"/apps/{app_id}/jobs")).json == []


async def test_a_large_file_is_checked_at_its_beginning_when_a_job_is_made(house: House) -> None:
    app_id, many = await house.app_with_template(), lines(*range(150_000, 300_000))
    client = over(house, house.audience)
    assert len(many) > 1024 * 1024
    for content, status in ((many + b"\0\n", 201), (b"id\nu1\n\0\n" + many, 422)):
        path = await house.file("large-and-broken.csv", content)
        made = await client.post(f"/apps/{app_id}/jobs?template=like", {"service": "apns", "csvPath": path})
        assert made.status == status, made.body


async def test_a_first_line_that_looks_like_a_user_is_a_warning(house: House, crowded: Client) -> None:
    app_id, path = await house.app_with_template(), await house.file("headless.csv", b"user-0\nuser-1\n")
    assert codes(await ask(crowded, app_id, csvPath=path))[0] == "no-header"
    made = await house.admin.post(f"/apps/{app_id}/jobs?template=like", {"service": "apns", "csvPath": path})
    assert (made.status, made.json["warnings"]) == (
        201,
        ["The first line of the file looks like a user, not like a header: nothing is sent to that user."],
    )
    assert "warnings" not in (await house.admin.get(f"/apps/{app_id}/jobs/{made.json['id']}")).json


async def test_users_whom_the_column_cannot_hold_are_unknown(
    house: House, own_crowd: Audience, push_database: str
) -> None:
    connection = await asyncpg.connect(push_database)
    await connection.execute("ALTER TABLE game_apns ALTER user_id TYPE bigint USING substr(user_id, 6)::bigint")
    await connection.close()
    path = await house.file("words.csv", lines(7, "ann"))
    reply = await ask(over(house, own_crowd), await house.app_with_template(), csvPath=path)
    assert (reply.status, codes(reply)) == (200, ["unknown-users", "no-index", "english-used"])
    assert reply.json["warnings"][0]["message"].startswith("1 of the users in the file")


async def test_two_spellings_of_one_user_are_a_repeat(house: House, own_crowd: Audience, push_database: str) -> None:
    connection = await asyncpg.connect(push_database)
    await connection.execute("ALTER TABLE game_apns ALTER user_id TYPE bigint USING substr(user_id, 6)::bigint")
    await connection.close()
    path = await house.file("numbers.csv", lines(7, "07", 8, " 7"))
    reply = await ask(over(house, own_crowd), await house.app_with_template(), csvPath=path)
    audience = reply.json["audience"]
    assert (audience["users"], audience["unknown"], audience["repeated"]) == (2, 0, 2)


async def test_a_column_whose_equality_is_not_ours_is_refused(
    house: House, own_crowd: Audience, push_database: str
) -> None:
    connection = await asyncpg.connect(push_database)
    await connection.execute("ALTER TABLE game_apns ALTER user_id TYPE character(12)")
    await connection.close()
    path = await house.file("padded.csv", lines("user-7"))
    reply = await ask(over(house, own_crowd), await house.app_with_template(), csvPath=path)
    assert reply.status == 422
    assert b"is bpchar; a csvPath needs one of text" in reply.body


async def test_a_file_in_which_nobody_is_known_is_a_warning(house: House, crowded: Client) -> None:
    path = await house.file("strangers.csv", lines("ann", "bob", "ann"))
    reply = await ask(crowded, await house.app_with_template(), csvPath=path)
    assert (reply.json["audience"]["exact"], reply.json["audience"]["users"]) == (True, 0)
    assert codes(reply) == ["nobody", "no-index"]
    assert "None of the 2 users" in reply.json["warnings"][0]["message"]


@pytest.mark.parametrize(
    ("name", "content"), [("missing.csv", None), ("empty.csv", b""), ("large.csv", b"x" * 101), ("../up.csv", None)]
)
async def test_a_file_that_post_refuses_is_refused(house: House, name: str, content: bytes | None) -> None:
    app_id = await house.app_with_template()
    path = f"{house.blobs.bucket}/{name}" if content is None else await house.file(name, content)
    reply = await ask(house.admin, app_id, csvPath=path)
    posted = await house.admin.post(f"/apps/{app_id}/jobs?template=like", {"service": "apns", "csvPath": path})
    assert (reply.status, reply.json["field"]) == (422, "csvPath")
    assert (posted.status, posted.json["reason"]) == (422, reply.json["reason"])


class _Watched:
    """The same blobs, of which is noted how often a file is asked for; of reads, all but the first bytes never come."""

    def __init__(self, blobs: Blobs, readable: int) -> None:
        self._blobs = blobs
        self._readable = readable
        self.asked = 0
        self.closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blobs, name)

    async def stat(self, path: str) -> File:
        self.asked += 1
        return await self._blobs.stat(path)

    async def read(self, blob: File, start: int, end: int) -> AsyncGenerator[bytes]:
        try:
            async with aclosing(self._blobs.read(blob, start, min(end, self._readable))) as chunks:
                async for chunk in chunks:
                    yield chunk
            if end > self._readable:
                raise TimeoutError  # as the limit of the preview does, however long this machine took until here
        finally:
            self.closed = True


async def test_a_file_is_asked_for_once(house: House, crowd: Audience) -> None:
    blobs, path = _Watched(house.blobs, 10**6), await house.file("once.csv", SMALL)
    reply = await ask(over(house, crowd, blobs=blobs), await house.app_with_template(), csvPath=path)
    assert (reply.status, blobs.asked) == (200, 1)


async def test_what_is_not_read_in_time_is_taken_to_be_like_the_rest(house: House, crowd: Audience) -> None:
    """The rest of the file is asked for when what came has been looked up, and never comes."""
    users = [f"user-{number}" for number in range(100, 500)]
    path, read = await house.file("slow.csv", lines(*users)), len(lines(*users[:100]))
    blobs = _Watched(house.blobs, read + 5)
    client = over(house, crowd, ApiSettings(first_admin=ADMIN, preview_seconds=50), blobs=blobs)
    reply = await ask(client, await house.app_with_template(), csvPath=path)
    assert reply.status == 200, reply.body
    audience, whole = reply.json["audience"], reply.json["fileBytes"]
    assert (audience["exact"], audience["devices"], audience["users"]) == (False, 200, 100)
    assert audience["estimatedDevices"] == round(200 * whole / read)
    assert audience["estimatedUsers"] == round(100 * whole / read)
    assert codes(reply) == ["no-index", "english-used"]
    assert blobs.closed


class _Locking:
    """The same audience, whose table is locked by somebody else while users are looked up in it."""

    def __init__(self, audience: Audience, url: str) -> None:
        self._audience = audience
        self._url = url

    def __getattr__(self, name: str) -> Any:
        return getattr(self._audience, name)

    async def count_users(self, *args: Any) -> Any:
        other = await asyncpg.connect(self._url)
        try:
            async with other.transaction():
                await other.execute("LOCK TABLE game_apns IN ACCESS EXCLUSIVE MODE")
                return await self._audience.count_users(*args)
        finally:
            await other.close()


async def test_users_who_cannot_be_looked_up_in_time_are_told_as_unknown(
    house: House, crowd: Audience, crowd_url: str
) -> None:
    client = over(house, _Locking(crowd, crowd_url), ApiSettings(first_admin=ADMIN, preview_seconds=0.2))
    path = await house.file("locked.csv", SMALL)
    reply = await ask(client, await house.app_with_template(), csvPath=path)
    assert reply.status == 200, reply.body
    audience = reply.json["audience"]
    assert (audience["exact"], audience["devices"], audience["estimatedDevices"]) == (False, 0, None)
    assert "nobody" not in codes(reply)


async def test_a_file_in_s3_is_read(house: House, crowd: Audience, stack: Endpoints) -> None:
    owner, bucket = BucketOwner(stack.s3_url), "preview-of-files"
    blobs = S3Blobs(
        f"s3://{bucket}", endpoint_url=stack.s3_url, region="us-east-1", access_key="anybody", secret_key="anything"
    )
    owner.make(bucket)
    try:
        owner.put(f"{bucket}/users.csv", SMALL)
        client, app_id = over(house, crowd, blobs=blobs), await house.app_with_template()
        reply = await ask(client, app_id, csvPath=f"{bucket}/users.csv")
        assert reply.status == 200, reply.body
        assert (reply.json["audience"]["exact"], reply.json["audience"]["devices"]) == (True, 6)
        missing = await ask(client, app_id, csvPath=f"{bucket}/other.csv")
        assert (missing.status, missing.json["field"]) == (422, "csvPath")
    finally:
        owner.remove(bucket)
        await blobs.close()


async def test_a_first_line_that_is_a_known_user_is_a_warning(house: House, crowded: Client) -> None:
    """Trimmed, as users are; a name of a column that no user has is none."""
    app_id = await house.app_with_template()
    for content, warns in ((b"user-2 \nstranger\n", True), (b"id\nuser-2\n", False), (b'""\nstranger\n', False)):
        path = await house.file("first.csv", content)
        preview = await ask(crowded, app_id, csvPath=path)
        assert ("no-header" in codes(preview)) is warns, preview.body
        made = await crowded.post(f"/apps/{app_id}/jobs?template=like", {"service": "apns", "csvPath": path})
        assert (HEADER_IS_DATA in made.json.get("warnings", ())) is warns, made.body


async def test_ids_are_looked_up_without_what_nobody_sees_around_them(house: House, crowded: Client) -> None:
    content = 'id\nuser-0 \n\u200buser-1\t\n"user-3 "\nuser-0\nnobody \n'.encode()
    reply = await ask(crowded, await house.app_with_template(), csvPath=await house.file("trimmed.csv", content))
    audience = reply.json["audience"]
    assert (audience["users"], audience["unknown"], audience["repeated"]) == (3, 1, 1)
