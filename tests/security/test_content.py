"""What a caller with a right to an app can say that is large, deep, or made to cost much: to every operation with a
body, at every place that takes free JSON or a text of the caller's own."""

import json
import random
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any

import pytest

from tests.security.operations import Operation
from tests.security.stores import Database
from tests.security.target import Answer, Target
from tests.security.tenants import Tenant, Town, who_may
from tests.tiers import and_rarely

pytestmark = [pytest.mark.attack, pytest.mark.asyncio(loop_scope="session"), pytest.mark.usefixtures("judged")]

KIB = 2**10
MIB = 2**20
MOST = 1_000_000
"""Bytes of a hostile value: what is said beside it must fit into a body too."""
PAGE_BYTES = 10 * MIB
"""A page ends at 8 MB, and may hold one thing more."""
_HERE = "@here@"


def many(item: str, opened: str = "[", closed: str = "]") -> str:
    """So many items of an array as fit."""
    return opened + ",".join([item] * (MOST // (len(item) + 1))) + closed


def distinct(form: str, rand: random.Random) -> str:
    """An object of so many different keys."""
    return "{" + ",".join(form.format(rand.randrange(10**9)) for _ in range(MOST // len(form.format(10**9)))) + "}"


def deep(opened: str, closed: str, depth: int) -> str:
    return opened * depth + "1" + closed * depth


HOSTILE = {
    "nested arrays": deep("[", "]", MOST // 2),
    "arrays that never end": "[" * MOST,
    "nested objects": deep('{"a":', "}", MOST // 7),
    "arrays as deep as is let": many(deep("[", "]", 60)),
    "zeros": many("0"),
    "long keys over zeros": '{"'
    + '":{"'.join(c * (60 * KIB) for c in "abcdef")
    + '":'
    + many("0")[: MOST // 2]
    + "]"
    + "}" * 6,
    "keys that are the same": many('"a":0', "{", "}"),
    "keys that differ by case": distinct('"K{}":0', random.Random(1)),
    "keys of dollars and dots": distinct('"$a.{}":0', random.Random(2)),
    "a key of a megabyte": '{"' + "k" * MOST + '":0}',
    "an integer of a megabyte": "9" * MOST,
    "a fraction of a megabyte": "0." + "1" * MOST,
    "exponents": many("1e999999"),
    "integers of 20 digits": many("-9223372036854775809"),
    "escapes": '"' + "\\u0000" * (MOST // 6) + '"',
    "halves of surrogate pairs": '"' + "\\ud800" * (MOST // 6) + '"',
    "a text of a megabyte": '"' + "a" * MOST + '"',
    "a text that never ends": '"' + "\\" * MOST,
    "texts without end": many('""'),
    "opening braces": '"' + "{" * MOST + '"',
    "opening braces, 64 KiB": '{"a":"' + "{" * (64 * KIB - 1) + '"}',
    "tags never closed": '{"a":"' + "{{a" * (20 * KIB) + '"}',
    "closing before opening": '{"a":"' + "}}{{" * (16 * KIB - 1) + '"}',
    "tags of braces": '{"a":"' + "{{{}}" * (12 * KIB) + '"}',
    "tags in 15 texts": "{" + ",".join(f'"{n}":"' + "{{" * (32 * KIB - 1) + '"' for n in range(15)) + "}",
    "tags as keys": '{"' + "{{" * (30 * KIB) + '":1}',
}

MUCH_ALIKE = (
    "nested objects", "arrays as deep as is let", "long keys over zeros", "keys that are the same",
    "a key of a megabyte", "a fraction of a megabyte", "integers of 20 digits", "escapes", "a text of a megabyte",
    "a text that never ends", "opening braces, 64 KiB", "tags never closed", "closing before opening",
    "tags of braces",
)  # fmt: skip
"""One that is broken or costs in the same way is among the others."""

# Where the JSON, or a text, is the caller's own.
FREE = {"alert", "body", "context", "defaults", "filters", "headers", "key", "labels", "metadata", "name", "payload"}


@pytest.mark.parametrize("name", and_rarely(*(name for name in HOSTILE if name not in MUCH_ALIKE), rarely=MUCH_ALIKE))
async def test_no_body_stops_the_process(target: Target, town: Town, api: list[Operation], name: str) -> None:
    """Once for each schema of a body, at its free places."""
    tenant = await town.tenant()
    by_schema = {each.body: each for each in reversed(api) if each.takes_json}
    async with target.attack(f"bodies of {name}"):
        await hostile_to(target, tenant, by_schema.values(), HOSTILE[name], FREE)


@pytest.mark.storm
@pytest.mark.parametrize("name", HOSTILE)
async def test_no_body_stops_the_process_at_any_place_of_any_operation(
    target: Target, town: Town, api: list[Operation], name: str
) -> None:
    tenant = await town.tenant()
    async with target.attack(f"everywhere, bodies of {name}", seconds=300):
        await hostile_to(target, tenant, api, HOSTILE[name], None)


async def hostile_to(
    target: Target, tenant: Tenant, operations: Iterable[Operation], hostile: str, places: AbstractSet[str] | None
) -> None:
    for operation in operations:
        for body in placed(operation, tenant, hostile, places):
            answer = await sent(target, operation, tenant, body)
            assert answer.status < 500, f"{operation}: {answer}"
            assert str(answer.status) in operation.statuses, f"{operation}: {answer}"


async def sent(target: Target, operation: Operation, tenant: Tenant, body: bytes) -> Answer:
    headers = who_may(operation, tenant)
    return await target.call(operation.method, operation.filled(tenant.ids), body, headers)


def placed(operation: Operation, tenant: Tenant, hostile: str, places: AbstractSet[str] | None) -> Iterator[bytes]:
    """The hostile value as the whole body, and at these places of a valid one, or at each."""
    if not operation.takes_json:
        return
    yield hostile.encode()
    valid: Any = operation.valid(tenant.ids)
    first = valid[0] if isinstance(valid, list) else valid
    for changed in replaced(first, places):
        text = json.dumps([changed] if isinstance(valid, list) else changed)
        yield text.replace(f'"{_HERE}"', hostile).encode()


def replaced(value: dict[str, Any], places: AbstractSet[str] | None) -> Iterator[dict[str, Any]]:
    """The object with one value after the other replaced by the place's mark."""
    for key, inner in value.items():
        if places is None or key in places:
            yield value | {key: _HERE}
        if isinstance(inner, dict):
            yield from (value | {key: changed} for changed in replaced(inner, places))


GROWING = {
    "13,000 tags": [("{{a}}" * 13_000, "x" * (60 * KIB))],
    "13,000 tags in 15 texts": [("{{a}}" * 13_000, "x" * (60 * KIB))] * 15,
    "2,000 tags": [("{{a}}" * 2_000, "x" * (60 * KIB))],
    "600 tags in each of 100 texts": [("{{a}}" * 600, "x" * (60 * KIB))] * 100,
}


@pytest.mark.parametrize("asked", ["preview", "job"])
@pytest.mark.parametrize("name", GROWING)
async def test_what_a_template_would_make_is_refused_before_it_is_made(
    target: Target, town: Town, name: str, asked: str
) -> None:
    tenant = await town.settler()
    app = f"/apps/{tenant.ids['appId']}"
    texts = {f"t{place}": text for place, (text, _) in enumerate(GROWING[name])}
    template = {"name": "grows", "locale": "en", "body": texts}
    job = {"service": "apns", "context": {"a": GROWING[name][0][1]}, "startsAt": 6_000_000_000 * 10**9}
    path = f"{app}/jobs/preview" if asked == "preview" else f"{app}/jobs"
    async with target.attack(f"{asked} of {name}"):
        made = await target.call("POST", f"{app}/templates", template, tenant.headers)
        # The body alone is small; a template that grows by its own defaults is refused already here.
        assert made.status in {201, 413, 422}
        if made.status == 201:
            answer = await target.call("POST", f"{path}?template=grows", job, tenant.headers)
            assert answer.status == 422, answer


async def test_a_template_that_grows_by_its_defaults_is_refused(target: Target, town: Town) -> None:
    tenant = await town.settler()
    template = {"name": "g", "locale": "en", "body": {"a": "{{a}}" * 13_000}, "defaults": {"a": "x" * (60 * KIB)}}
    async with target.attack("a template that grows by its defaults"):
        answer = await target.call("POST", f"/apps/{tenant.ids['appId']}/templates", template, tenant.headers)
        assert answer.status == 422, answer


CALLBACK = {"type": "rabbitmq", "data": {"queue": "orders", "payload": 1}}
NEVER = "0 0 */31 * 1#5"


def recurring(**fields: Any) -> dict[str, Any]:
    return {"callback": CALLBACK, **fields}


BULKS: dict[str, list[dict[str, Any]]] = {
    "1,000 lines that never come": [recurring(key=f"k{n}", cron=NEVER) for n in range(1_000)],
    "1,000 different lines that never come": [
        recurring(key=f"k{n}", cron=f"{n % 60} {n // 60} */31 * 1#5") for n in range(1_000)
    ],
    "1,000 lines in 400 zones": [
        recurring(key=f"k{n}", cron=f"{n % 60} 0 29 2 {n % 7}", timezone=f"Etc/GMT{n % 12 + 1:+d}")
        for n in range(1_000)
    ],
    "10,000 lines that never come": [recurring(key=f"k{n}", cron=NEVER) for n in range(10_000)],
    "10,000 items that are wrong": [{"key": f"k{n}", "nobody": n} for n in range(10_000)],
    "10,000 bad time zones": [recurring(key=f"k{n}", cron="0 0 * * *", timezone=f"No/Zone{n}") for n in range(10_000)],
    "lines of lists": [recurring(key=f"k{n}", cron=",".join(["*/1"] * 200) + " * * * *") for n in range(1_000)],
    "lists of 20,000 instants": [
        recurring(key=f"k{n}", schedules=[f"2160-01-01T00:{m // 60:02}:{m % 60:02}Z" for m in range(1_000)])
        for n in range(20)
    ],
}


@pytest.mark.parametrize("name", BULKS)
async def test_no_list_of_schedules_stops_the_process(target: Target, town: Town, name: str) -> None:
    stranger = await town.stranger()
    async with target.attack(f"in bulk: {name}"):
        answer = await target.call("POST", "/schedules/bulk", BULKS[name], stranger.headers)
        assert answer.status in {200, 413, 422, 429}, answer


@pytest.mark.parametrize("path", ["/schedules", "/schedules/preview"])
@pytest.mark.parametrize(
    "line", [NEVER, "0 0 29 2 1", "* * * * *", "59 23 31 12 0", "0 0 31 */2 *", "*/59 */23 */31 */12 1#5", "0 0 L * 5L"]
)
async def test_no_line_is_expensive(target: Target, town: Town, path: str, line: str) -> None:
    stranger = await town.stranger()
    async with target.attack(f"{path} of {line}"):
        for zone in ("UTC", "Europe/Lisbon", "Australia/Lord_Howe"):
            body = recurring(key="k" if path == "/schedules" else None, cron=line, timezone=zone)
            answer = await target.call("POST", path, body, stranger.headers)
            assert answer.status < 500, answer


@pytest.fixture
def forgetful(database: Database) -> Iterator[list[str]]:
    """Ids of apps whose large things are taken away again, so that later looks at the database stay short."""
    apps: list[str] = []
    yield apps
    for app in apps:
        database.forget(app)


async def test_a_list_of_large_templates_comes_in_pages(target: Target, town: Town, forgetful: list[str]) -> None:
    tenant = await town.settler()
    forgetful.append(tenant.ids["appId"])
    path = f"/apps/{tenant.ids['appId']}/templates"
    texts = {f"t{n}": "x" * (60 * KIB) for n in range(16)}
    async with target.attack("a list of 50 templates of 1 MB"):
        for n in range(50):
            body = {"name": f"n{n}", "locale": "en", "body": texts}
            assert (await target.call("POST", path, body, tenant.headers)).status == 201
        assert await listed(target, path, tenant) == 51


@pytest.mark.slow
async def test_a_list_of_jobs_with_large_contexts_is_short(target: Target, town: Town, forgetful: list[str]) -> None:
    tenant = await town.settler()
    forgetful.append(tenant.ids["appId"])
    path = f"/apps/{tenant.ids['appId']}/jobs"
    context = {f"t{n}": "x" * (60 * KIB) for n in range(16)}
    async with target.attack("a list of 60 jobs with contexts of 1 MB"):
        for _ in range(60):
            body = {"service": "apns", "context": context, "startsAt": 6_000_000_000 * 10**9}
            assert (await target.call("POST", f"{path}?template=like", body, tenant.headers)).status == 201
        assert await listed(target, path, tenant) == 60


async def test_a_list_of_schedules_with_large_payloads_comes_in_pages(
    target: Target, town: Town, database: Database
) -> None:
    stranger = await town.stranger()
    data = {"queue": "orders", "payload": "x" * (250 * KIB)}
    async with target.attack("a list of 220 schedules of 250 KiB"):
        for start in (0, 110):
            bulk = [
                {"key": f"k{n}", "schedules": ["2160-01-01T00:00:00Z"], "callback": {"type": "rabbitmq", "data": data}}
                for n in range(start, start + 110)
            ]
            made = await target.call("POST", "/schedules/bulk", bulk, stranger.headers)
            assert {item["status"] for item in made.json} == {201}, made
        assert await listed(target, "/schedules", stranger) == 220
    database.forget_schedules(stranger.namespace)


async def listed(target: Target, path: str, tenant: Tenant) -> int:
    """How many items a list has, page by page; no page is larger than a page may be."""
    count, following = 0, path
    while following:
        answer = await target.call("GET", following, headers=tenant.headers)
        assert answer.status == 200, f"{following}: {answer}"
        assert len(answer.body) <= PAGE_BYTES
        count += len(answer.json)
        following = answer.headers.get("link", "<>").partition("<")[2].partition(">")[0]
    return count
