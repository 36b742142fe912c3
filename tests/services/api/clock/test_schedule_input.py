"""What bad input for a schedule gets: a 4xx that names the field and the rule, and nothing stored."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from shared.drivers.http.guard import OwnApi
from shared.drivers.kafka.local import LocalStream
from shared.drivers.rabbitmq.memory import MemoryBroker
from tests.services.api.client import Client, Reply
from tests.services.api.conftest import House
from tests.services.api.test_bad_input import is_problem

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET = "whsec_" + "QUJD" * 10
QUEUE = {"type": "rabbitmq", "data": {"queue": "invitations", "payload": {"id": "42"}}}
BODY = {"key": "k", "schedules": ["2100-01-01T00:00:00Z"], "callback": QUEUE}
COLLECTIONS = ("schedules", "occurrences", "idempotency_keys")


async def stored(house: House) -> dict[str, int]:
    return {name: await house.store._database[name].count_documents({}) for name in COLLECTIONS}


@pytest_asyncio.fixture(loop_scope="module")
async def unchanged(house: House) -> AsyncIterator[None]:
    """The test stores nothing."""
    before = await stored(house)
    yield
    assert await stored(house) == before


def changed(**fields: Any) -> dict[str, Any]:
    return BODY | fields


def recurring(**fields: Any) -> dict[str, Any]:
    return {"key": "k", "callback": QUEUE} | fields


def rabbit(**data: Any) -> dict[str, Any]:
    return changed(callback={"type": "rabbitmq", "data": {"payload": 1} | data})


def http(**data: Any) -> dict[str, Any]:
    return changed(callback={"type": "http", "data": {"url": "https://example.com/", "payload": 1} | data})


def kafka(**data: Any) -> dict[str, Any]:
    return changed(callback={"type": "kafka", "data": {"topic": "orders", "payload": 1} | data})


def seconds(count: int) -> list[str]:
    return [f"2100-01-01T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}Z" for n in range(count)]


TWO_URLS = (
    b'{"key":"k","every":60,"callback":{"type":"http","data":'
    b'{"url":"https://example.com/","url":"https://example.org/","payload":1}}}'
)
BAD: list[tuple[Any, str | None, str]] = [
    # the body
    (b"", None, "the body is empty"),
    (b"{", None, "not JSON"),
    (b"[]", None, "object"),
    (b"null", None, "object"),
    (b"{} x", "callback", "is needed"),
    (json.dumps(BODY).encode() + b" x", None, "not JSON"),
    (b'{"key":"\xff"}', None, "not UTF-8"),
    (b'{"callback":{"type":"rabbitmq","data":{"queue":"q","payload":"\xff"}}}', None, "not UTF-8"),
    (b'{"callback":{"type":"rabbitmq","data":{"queue":"q","payload":NaN}}}', None, "not JSON"),
    (b'{"callback":{"type":"rabbitmq","data":{"queue":"q","payload":"\x00"}}}', None, "not JSON"),
    (b'{"callback":{"type":"rabbitmq","data":{"payload":' + b"[" * 9000 + b"]" * 9000 + b"}}}", None, "too deeply"),
    (b'{"callback":{"type":"rabbitmq","data":{"queue":"q","payload":"\\ud800"}}}', None, "half of a surrogate pair"),
    (b'{"callback":{"type":"rabbitmq","data":{"queue":"q","payload":{"\\udc00":1}}}}', None, "half of a surrogate"),
    (b'{"every":60,"labels":{"a":"\\ud800"}}', None, "half of a surrogate pair"),
    (changed(shedules=[]), "shedules", "no field"),
    (changed(Key="k"), "Key", "no field"),
    # the key
    ({name: value for name, value in BODY.items() if name != "key"}, "key", "needed"),
    *(
        (changed(key=key), "key", "")
        for key in ("", "a b", "a/b", "ä", "k" * 256, "a\n", 1, "bulk", "due", "preview", "..")
    ),
    # instants
    (changed(schedules=[]), "schedules", "1 to 10,000"),
    (changed(schedules=seconds(10_001)), "schedules", "1 to 10,000"),
    (changed(schedules="2100-01-01T00:00:00Z"), "schedules", "array"),
    (changed(schedules=["2100-01-01T00:00:00Z", 1]), "schedules[1]", "str"),
    (changed(schedules=["2100-01-01T00:00:00Z", "2100-01-01T00:00:00"]), "schedules[1]", "needs a zone"),
    (changed(schedules=["tomorrow"]), "schedules[0]", "timestamp"),
    (changed(schedules=["2100-02-30T00:00:00Z"]), "schedules[0]", "no such date"),
    (changed(schedules=["2201-01-01T00:00:00Z"]), "schedules[0]", "2200"),
    (changed(schedules=["2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z"]), "schedules", "ahead"),
    # recurrences
    ({"key": "k", "callback": QUEUE}, "schedules", "give one of"),
    (changed(every=60), "every", "give only one of"),
    (recurring(every=60, cron="* * * * *"), "every", "give only one of"),
    (recurring(every=0), "every", ">= 1"),
    (recurring(every=1.5), "every", "int"),
    (recurring(every=True), "every", "int"),
    (recurring(every="60"), "every", "int"),
    (recurring(every=10**13), "every", "<="),
    (recurring(every=10**30), "every", "<="),
    (recurring(every=60, timezone="UTC"), "timezone", "goes with cron"),
    (recurring(cron="* * * *"), "cron", "five fields"),
    (recurring(cron="* * * * * *"), "cron", "five fields"),
    (recurring(cron="61 * * * *"), "cron", ""),
    (recurring(cron="*/90 * * * *"), "cron", "for every 90 minutes use every: 5400"),
    (recurring(cron="0 */36 * * *"), "cron", "for every 36 hours use every: 129600"),
    (recurring(cron="0 0 1 1-12/13 *"), "cron", "the step 13 exceeds the 12 of a month field"),
    (json.dumps(BODY).encode()[:-1] + b',"key":"other"}', "key", "twice: remove one"),
    (json.dumps(BODY).encode()[:-1] + b',"retry":{"attempts":1,"attempts":2}}', "retry.attempts", "twice: remove one"),
    (json.dumps(BODY).encode()[:-1] + b',"labels":{"a":"1","a":"2"}}', "labels.a", "twice: remove one"),
    (TWO_URLS, "callback.data.url", "twice: remove one"),
    (
        changed(callback={"type": "webhook", "data": {}}),
        "callback.type",
        "must be one of rabbitmq, http, kafka, job, not",
    ),
    (changed(misfire="drop"), "misfire", "must be one of fire, skip, an object, not 'drop'"),
    (recurring(cron="0 0 30 2 *"), "cron", "never fires"),
    (recurring(cron=" ".join(["0"] * 5) + " " * 300), "cron", ""),
    (recurring(cron="* * * * *", timezone="Mars/Olympus"), "timezone", "unknown time zone"),
    (recurring(cron="* * * * *", timezone="europe/paris"), "timezone", "did you mean Europe/Paris?"),
    (recurring(cron="* * * * *", timezone="UTC+3"), "timezone", "unknown time zone; IANA has names such as"),
    (recurring(cron="* * * * *", timezone="PST"), "timezone", "unknown time zone; IANA has names such as"),
    (recurring(cron="* * * * *", timezone="../../etc/passwd"), "timezone", "unknown time zone"),
    (recurring(cron="* * * * *", timezone=""), "timezone", "unknown time zone"),
    (recurring(cron="* * * * *", starts_at="2100-01-01T00:00:00"), "starts_at", "zone"),
    (recurring(cron="* * * * *", ends_at="2300-01-01T00:00:00Z"), "ends_at", "2200"),
    (recurring(every=1, starts_at="2100-01-02T00:00:00Z", ends_at="2100-01-01T00:00:00Z"), "ends_at", "before"),
    (recurring(cron="0 0 1 1 *", starts_at="2100-01-02T00:00:00Z", ends_at="2100-01-03T00:00:00Z"), "ends_at", ""),
    (recurring(every=60, ends_at="2020-01-01T00:00:00Z"), "ends_at", "ahead"),
    (recurring(every=60, max_occurrences=0), "max_occurrences", ">= 1"),
    (changed(max_occurrences=1), "max_occurrences", "goes with"),
    (changed(starts_at="2100-01-01T00:00:00Z"), "starts_at", "goes with"),
    # the rest of the definition
    (changed(window_seconds=-1), "window_seconds", ">= 0"),
    (changed(window_seconds=86_401), "window_seconds", "<= 86400"),
    (json.dumps(changed(window_seconds=float("nan"))).encode(), None, "not JSON"),
    (json.dumps(BODY).encode()[:-1] + b',"window_seconds":1e999}', "window_seconds", "range"),
    (changed(misfire={"fire_within_seconds": 0}), "misfire.fire_within_seconds", ">= 1"),
    (changed(misfire={"fire_within_seconds": 1e300}), "misfire.fire_within_seconds", "<="),
    (changed(misfire={}), "misfire.fire_within_seconds", "needed"),
    (changed(retry={"attempts": 0}), "retry.attempts", ">= 1"),
    (changed(retry={"attempts": 101}), "retry.attempts", "<= 100"),
    (changed(retry={"first_delay_seconds": 0}), "retry.first_delay_seconds", ">= 0.1"),
    (changed(retry={"first_delay_seconds": 86_401}), "retry.first_delay_seconds", "<= 86400"),
    (changed(retry={"factor": 0.5}), "retry.factor", ">= 1"),
    (changed(retry={"factor": 11}), "retry.factor", "<= 10"),
    (changed(retry={"cap_seconds": 604_801}), "retry.cap_seconds", "<= 604800"),
    (changed(retry={"jitter": 1}), "retry.jitter", "no field"),
    (changed(labels={f"l{n}": "" for n in range(21)}), "labels", "at most 20"),
    (changed(labels={"": "x"}), "labels", "1 to 63"),
    (changed(labels={"l" * 64: "x"}), "labels", "1 to 63"),
    (changed(labels={"a\0b": "x"}), "labels", "printable"),
    (changed(labels={"team": "x" * 256}), "labels.team", "at most 255"),
    (changed(labels={"team": 1}), "labels[...]", "str"),
    (changed(labels={"a:b": "c"}), "labels", "no colon or comma"),
    (changed(labels={"a,b": "c"}), "labels", "no colon or comma"),
    (changed(labels={"team": "x,y"}), "labels.team", "no comma"),
    # callbacks
    (changed(callback=None), "callback", ""),
    (changed(callback={"data": {}}), "callback.type", "needed"),
    (changed(callback={"type": "smtp", "data": {}}), "callback.type", "smtp"),
    (changed(callback={"type": "http"}), "callback.data", "needed"),
    (changed(callback=QUEUE | {"more": 1}), "callback.more", "no field"),
    (changed(callback={"type": "rabbitmq", "data": {"queue": "q"}}), "callback.data.payload", "needed"),
    (rabbit(queue="q", url="x"), "callback.data.url", "no field"),
    (rabbit(), "callback.data.queue", "must be given"),
    (rabbit(queue=1), "callback.data.queue", "str"),
    (rabbit(queue="q", exchange="orders"), "callback.data.queue", "either"),
    (rabbit(queue="q", routing_key="r"), "callback.data.routing_key", "goes with exchange"),
    (rabbit(queue="a\0b"), "callback.data.queue", "printable"),
    (rabbit(queue="q" * 256), "callback.data.queue", "255 bytes"),
    *(
        (rabbit(queue=queue), "callback.data.queue", "reserved")
        for queue in ("push.split", "sched.x", "carillon.x", "amq.gen-1", "PUSH.split")
    ),
    (rabbit(exchange="other", routing_key="r"), "callback.data.exchange", "list"),
    (rabbit(queue="q", payload="x" * (256 * 1024 - 1)), "callback.data.payload", "256 KiB"),
    (rabbit(queue="q", headers={f"h{n}": "" for n in range(51)}), "callback.data.headers", "at most 50"),
    (rabbit(queue="q", headers={"h": "x" * 8192}), "callback.data.headers", "bytes"),
    (rabbit(queue="q", headers={"": "x"}), "callback.data.headers", "printable"),
    (rabbit(queue="q", headers={"h": 1}), "callback.data.headers[...]", "str"),
    (rabbit(queue="q", headers={"Carillon-Key": "x"}), "callback.data.headers.Carillon-Key", "Carillon's"),
    (rabbit(queue="q", headers={"CC": "push.split"}), "callback.data.headers.CC", "elsewhere"),
    (rabbit(queue="q", headers={"BCC": "push.split"}), "callback.data.headers.BCC", "elsewhere"),
    (http(url="ftp://example.com/"), "callback.data.url", "http"),
    (http(url="http://127.0.0.1/"), "callback.data.url", ""),
    (http(url="http://10.1.2.3/"), "callback.data.url", ""),
    (http(url="http://169.254.169.254/latest/meta-data"), "callback.data.url", ""),
    (http(url="http://[::1]:8080/"), "callback.data.url", ""),
    (http(url="http://localhost/"), "callback.data.url", ""),
    (http(url="http://2130706433/"), "callback.data.url", ""),
    (http(url="http://user:pw@example.com/"), "callback.data.url", ""),
    (http(method="BREW"), "callback.data.method", "one of"),
    (http(headers={"Host": "x"}), "callback.data.headers.Host", ""),
    (http(headers={"x-forwarded-email": "a@b.example"}), "callback.data.headers.x-forwarded-email", "who is asking"),
    (http(headers={"X-A": "a\r\nX-B: b"}), "callback.data.headers.X-A", ""),
    (http(headers={"carillon-key": "x"}), "callback.data.headers.carillon-key", ""),
    (http(secret="s3cret"), "callback.data.secret", "whsec_"),
    (http(secret="whsec_***"), "callback.data.secret", "whsec_"),
    (http(payload="x" * (256 * 1024 - 1)), "callback.data.payload", "256 KiB"),
    (kafka(topic="other"), "callback.data.topic", "list"),
    (kafka(topic=""), "callback.data.topic", "list"),
    (kafka(key="k" * 4_097), "callback.data.key", "4,096"),
    (kafka(headers={"carillon-due": "x"}), "callback.data.headers.carillon-due", "Carillon's"),
]
BAD_PAYLOADS = [
    (b"[" * 65 + b"]" * 65, "nested at most 64 deep"),
    (b'{"a":' * 850 + b"1" + b"}" * 850, "nested at most 64 deep"),
    (b"9" * 4_301, "at most 4,300 digits"),
    (b"[1e" + b"9" * 20 + b"]", "an exponent of at most 17"),
]


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(("payload", "reason"), BAD_PAYLOADS)
async def test_a_payload_that_could_not_be_shown_is_refused(house: House, payload: bytes, reason: str) -> None:
    body = b'{"key":"k","every":60,"callback":{"type":"rabbitmq","data":{"queue":"q","payload":%s}}}' % payload
    replies = [
        await house.admin.post("/schedules", body),
        await house.admin.put("/schedules/k", body),
        await house.admin.post("/schedules/preview", body),
    ]
    for reply in replies:
        is_problem(reply, 422, "callback.data.payload")
        assert reason in reply.json["reason"]
    [told] = (await house.admin.post("/schedules/bulk", b"[%s]" % body)).json
    assert (told["status"], told["error"]["field"]) == (422, "callback.data.payload")


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(("body", "field", "reason"), BAD)
async def test_a_bad_schedule_is_refused(house: House, body: Any, field: str | None, reason: str) -> None:
    reply = await house.admin.post("/schedules", body, idempotency_key="fresh")
    is_problem(reply, 422, field)
    assert reason in reply.json["reason"]


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    ("body", "field"),
    [(changed(key="other"), "key"), (changed(schedules=["2020-01-01T00:00:00Z"]), "schedules"), (changed(x=1), "x")],
)
async def test_put_is_as_strict_and_wants_the_key_of_its_path(house: House, body: Any, field: str) -> None:
    is_problem(await house.admin.put("/schedules/k", body), 422, field)


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("key", ["a%20b", "k" * 256, "%C3%A4"])
async def test_a_path_with_a_bad_key_is_refused(house: House, key: str) -> None:
    body = {name: value for name, value in BODY.items() if name != "key"}
    is_problem(await house.admin.put(f"/schedules/{key}", body), 422, "key")


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb", "ä"])
async def test_a_bad_idempotency_key_is_refused(house: House, key: str) -> None:
    for path in ("/schedules", "/schedules/bulk"):
        body = BODY if path == "/schedules" else [BODY]
        is_problem(await house.admin.post(path, body, idempotency_key=key), 422, "Idempotency-Key")


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    ("method", "path", "field"),
    [
        ("GET", "/schedules?limit=0", "limit"),
        ("GET", "/schedules?limit=1001", "limit"),
        ("GET", "/schedules?cursor=x", "cursor"),
        ("GET", "/schedules?state=late", "state"),
        ("GET", "/schedules?prefix=a/b", "prefix"),
        ("GET", "/schedules?label=team", "label"),
        ("GET", "/schedules?label=:billing", "label"),
        ("GET", "/schedules?label=team:billing,", "label"),
        ("GET", "/schedules?label=" + ",".join(["a:b"] * 21), "label"),
        ("DELETE", "/schedules/k/occurrences/yesterday", "timestamp"),
        ("DELETE", "/schedules/k/occurrences/2100-01-01T00:00:00", "timestamp"),
        ("GET", "/dead-letters?limit=x", "limit"),
        ("GET", "/dead-letters?cursor=x", "cursor"),
    ],
)
async def test_a_bad_query_or_path_is_refused(house: House, method: str, path: str, field: str) -> None:
    is_problem(await house.admin.send(method, path), 422, field)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/schedules/none"),
        ("DELETE", "/schedules/none"),
        ("DELETE", "/schedules/none/occurrences/2100-01-01T00:00:00Z"),
        ("POST", "/schedules/none/pause"),
        ("POST", "/schedules/none/resume"),
        ("POST", "/schedules/none/fire"),
        ("POST", "/dead-letters/none/retry"),
        ("POST", "/dead-letters/none/discard"),
    ],
)
@pytest.mark.usefixtures("unchanged")
async def test_what_is_not_there_is_a_404(house: House, method: str, path: str) -> None:
    assert (await house.admin.send(method, path)).status == 404


@pytest.mark.parametrize(
    "path", ["/schedules", "/schedules/k", "/schedules/k/fire", "/dead-letters", "/dead-letters/x"]
)
async def test_strangers_learn_nothing(house: House, path: str) -> None:
    for method in ("GET", "POST", "PUT", "DELETE"):
        assert (await Client(house.admin.app).send(method, path, BODY)).status == 401


@pytest.mark.usefixtures("unchanged")
async def test_embedded_mode_says_why_it_takes_only_http(house: House, tmp_path: Path) -> None:
    stream = LocalStream.open(f"local://{tmp_path}/stream.db")
    embedded = Client(house.build(broker=MemoryBroker(), stream=stream), house.admin.headers)
    for body in (BODY, kafka()):
        reply = await embedded.post("/schedules", body)
        is_problem(reply, 422, "callback.type")
        assert "embedded mode" in reply.json["reason"]
    assert (await embedded.post("/schedules/preview", http())).status == 200


@pytest.mark.usefixtures("unchanged")
async def test_a_secret_is_never_shown_in_an_error(house: House) -> None:
    reply = await house.admin.post("/schedules", http(secret="whsec_hunter2"))
    assert b"hunter2" not in reply.body
    reply = await house.admin.post("/schedules", http(secret=SECRET, method="BREW"))
    assert SECRET.encode() not in reply.body


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        (b"", "application/json", "the body is empty"),
        (b"[", "application/json", "not JSON"),
        (b"[]", "application/json", "1 to 10,000 items"),
        (b"\n\n", "application/x-ndjson", "1 to 10,000 items"),
        (b"null", "application/json", "array"),
        (b"[" + b"{}," * 10_000 + b"{}]", "application/json", "1 to 10,000 items"),
        (b"{}\n" * 10_001, "application/x-ndjson", "1 to 10,000 items"),
    ],
)
async def test_a_bulk_request_that_is_none_is_refused_as_a_whole(
    house: House, body: bytes, kind: str, reason: str
) -> None:
    reply: Reply = await house.admin.post("/schedules/bulk", body, content_type=kind)
    is_problem(reply, 422, None)
    assert reason in reply.json["reason"]


@pytest.mark.usefixtures("unchanged")
async def test_a_bulk_request_may_be_large_but_not_endless(house: House) -> None:
    assert (await house.admin.post("/schedules/bulk", b" " * (32 * 2**20 + 1))).status == 413
    assert (await house.admin.post("/schedules", b" " * (2**20 + 1))).status == 413
    large = changed(callback={"type": "rabbitmq", "data": {"queue": "push.x", "payload": "x" * 200_000}})
    reply = await house.admin.post("/schedules/bulk", [large] * 20)
    assert [item["status"] for item in reply.json] == [422] * 20


async def test_a_callback_to_our_own_api_is_refused_at_once(house: House) -> None:
    own = OwnApi("127.0.0.1", 8080, public_url="https://push.example.com")
    client = Client(house.build(own_api=own), house.admin.headers)
    url = "https://push.example.com/users"
    refused = [
        (await client.post("/schedules", http(url=url)), "callback.data.url"),
        (await client.put("/schedules/k", http(url=url)), "callback.data.url"),
        (await client.post("/schedules/preview", http(url=url)), "callback.data.url"),
        (await client.put("/bus/subscriptions/k", {"callback": url, "topics": ["t"]}), "callback"),
    ]
    for reply, field in refused:
        is_problem(reply, 422, field)
        assert "own API" in reply.json["reason"]
    [item] = (await client.post("/schedules/bulk", [http(url=url)])).json
    assert (item["status"], item["error"]["field"]) == (422, "callback.data.url")
