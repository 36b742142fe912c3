"""What needs no server: values that are refused at once, pauses, links and errors."""

import ast
import inspect
import pydoc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest

import carillon
from carillon import (
    App,
    AsyncCarillon,
    Carillon,
    CarillonError,
    Conflict,
    Forbidden,
    Group,
    HttpCallback,
    Invalid,
    JobPreview,
    PushJob,
    RabbitCallback,
    Rate,
    RatePoint,
    Retry,
    Schedule,
    StoredJob,
    StoredSchedule,
    StoredTemplate,
    StoredUser,
)
from carillon.attempts import delay_seconds, retry_after_seconds
from carillon.calls import Resource, call, listing, next_query
from carillon.errors import error_of
from carillon.values import Instant
from tests.client.both import connect

NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001
AWARE = datetime(2030, 1, 1, tzinfo=UTC)
QUEUE = RabbitCallback(queue="q", payload={"id": "42"})


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("instants[1]", {"instants": [AWARE, NAIVE]}),
        ("starts_at", {"every_seconds": 60, "starts_at": NAIVE}),
        ("ends_at", {"every_seconds": 60, "ends_at": NAIVE}),
    ],
)
def test_an_instant_without_a_zone_is_refused_at_once(field: str, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="needs a time zone") as caught:
        Schedule(callback=QUEUE, **given)
    assert str(caught.value).startswith(f"{field}: ")


@pytest.mark.usefixtures("each_client")
async def test_an_instant_to_be_cancelled_needs_a_zone_too() -> None:
    async with connect("http://127.0.0.1:1", attempts=1) as client:
        with pytest.raises(ValueError, match=r"instant: .* time zone"):
            await client.schedules.cancel("k", NAIVE)


def test_a_job_is_checked_at_once() -> None:
    with pytest.raises(ValueError, match=r"starts_at: .* time zone"):
        PushJob(service="apns", template="like", starts_at=NAIVE)
    with pytest.raises(ValueError, match="needs a template"):
        PushJob(service="apns")
    with pytest.raises(ValueError, match="needs a template"):
        PushJob(service="apns", template=[])
    for share in (-0.1, 1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="control_group"):
            PushJob(service="apns", template="like", control_group=share)


def test_of_a_job_only_what_was_chosen_is_sent() -> None:
    job = PushJob(service="apns", template=["like", "love"])
    bare = {"service": "apns", "filters": {}, "context": {}, "metadata": {}, "startsAt": 0, "expiresAt": 0}
    assert job.query() == {"template": "like,love"}
    assert PushJob(service="apns", template="like").query() == {"template": "like"}
    assert msgspec.json.decode(job.encoded()) == bare
    chosen = msgspec.structs.replace(
        job, csv_path="bucket/a.csv", control_group=0.1, localized=True, past_time_strategy="skip", starts_at=AWARE
    )
    assert msgspec.json.decode(chosen.encoded()) == bare | {
        "csvPath": "bucket/a.csv", "controlGroup": 0.1, "localized": True, "pastTimeStrategy": "skip",
        "startsAt": int(AWARE.timestamp()) * 10**9,
    }  # fmt: skip


def test_a_localized_job_starts_at_a_time_without_a_zone() -> None:
    job = PushJob(service="apns", template="like", localized=True, starts_at=NAIVE)
    assert msgspec.json.decode(job.encoded())["startsAt"] == int(AWARE.timestamp()) * 10**9
    elsewhere = timezone(timedelta(hours=-3))
    with pytest.raises(ValueError, match=r"starts_at: .* on each zone's clocks: leave out tzinfo"):
        PushJob(service="apns", template="like", localized=True, starts_at=NAIVE.replace(tzinfo=elsewhere))


@pytest.mark.usefixtures("each_client")
@pytest.mark.parametrize("key", ["", ".", "..", "a/b", "a b", "a?b", "a%2Fb", "é", "k" * 256, "k\n"])
async def test_what_would_lead_to_another_path_is_refused_at_once(key: str) -> None:
    async with connect("http://127.0.0.1:1", attempts=1) as client:
        with pytest.raises(ValueError, match="a key or an id"):
            await client.schedules.delete(key)
        with pytest.raises(ValueError, match="a key or an id"):
            await client.jobs.get(key, "job")


@pytest.mark.usefixtures("each_client")
@pytest.mark.parametrize("url", ["", "localhost:8080", "ftp://host", "http://", "http://host/?a=b"])
def test_a_base_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="base_url"):
        connect(url)


@pytest.mark.usefixtures("each_client")
@pytest.mark.parametrize(
    "wrong", [{"attempts": 0}, {"timeout_seconds": 0}, {"connections": 0}, {"token": "t", "user": "u"}]
)
def test_arguments_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="or"):
        connect("http://host", **wrong)


def test_only_what_was_given_is_sent() -> None:
    zone = timezone(timedelta(hours=1))
    schedule = Schedule(key="k", instants=[datetime(2030, 1, 1, 1, tzinfo=zone)], callback=QUEUE)
    assert msgspec.json.decode(schedule.encoded()) == {
        "key": "k",
        "schedules": ["2030-01-01T00:00:00Z"],
        "window_seconds": 0.0,
        "misfire": "fire",
        "callback": {"type": "rabbitmq", "data": {"payload": {"id": "42"}, "queue": "q"}},
    }


def test_a_retry_rule_is_sent_whole_and_a_payload_as_it_is() -> None:
    call = HttpCallback(url="https://example.com", payload=msgspec.Raw(b'{ "n": 1.00 }'))
    sent = Schedule(every_seconds=60, retry=Retry(attempts=3), callback=call).encoded()
    assert b'{ "n": 1.00 }' in sent
    assert msgspec.json.decode(sent)["retry"] == {
        "attempts": 3, "first_delay_seconds": 5.0, "factor": 3.0, "cap_seconds": 3600.0,
    }  # fmt: skip


def test_pauses_double_up_to_a_bound_and_are_spread_from_nothing() -> None:
    assert [delay_seconds(attempt, 1.0) for attempt in (1, 2, 3, 4)] == [0.2, 0.4, 0.8, 1.6]
    assert delay_seconds(1_000_000, 1.0) == 10.0
    assert delay_seconds(5, 0.0) == 0.0
    assert delay_seconds(2, 0.5, 7.0) == 7.2


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "3"}, 3.0),
        ({"Retry-After": " 0 "}, 0.0),
        ({"Retry-After": "-3"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "Tue, 01 Jan 2030 00:00:09 GMT"}, 9.0),
        ({"Retry-After": "Tue, 01 Jan 2030 00:00:09 GMT", "Date": "Tue, 01 Jan 2030 00:00:05 GMT"}, 4.0),
        ({"Retry-After": "Mon, 31 Dec 2029 00:00:00 GMT"}, 0.0),
    ],
)
def test_what_retry_after_asks_for(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_seconds(headers, AWARE) == seconds


def test_a_link_leads_to_the_next_page() -> None:
    link = '</schedules?prefix=a%26b&limit=2&cursor=Im>; rel="next"'
    assert next_query(link) == {"prefix": "a&b", "limit": "2", "cursor": "Im"}
    assert next_query("") is None
    assert next_query('</schedules?cursor=x>; rel="prev"') is None


def test_an_error_is_read_from_a_problem_document_or_made_from_the_status() -> None:
    invalid = error_of(422, b'{"title":"x","status":422,"reason":"too late","field":"schedules[0]"}')
    assert (type(invalid), invalid.reason, invalid.status, invalid.field) == (Invalid, "too late", 422, "schedules[0]")
    assert str(invalid) == "schedules[0]: too late"
    of_s3 = error_of(400, b"<?xml?>\n<Error><Code>EntityTooLarge</Code><Message>a &gt; b</Message></Error>")
    assert (type(of_s3), str(of_s3)) == (Invalid, "EntityTooLarge: a > b")
    forbidden = error_of(403, b"<html>no</html>")
    assert (type(forbidden), str(forbidden)) == (Forbidden, "answered with 403 Forbidden")
    roles = error_of(403, b'{"reason":"you need the role admin","field":"role"}')
    assert type(roles) is Forbidden
    move = error_of(403, b'{"reason":"cannot pause completed job","field":"status"}')
    assert (type(move), move.status, move.field) == (Conflict, 403, "status")
    other = error_of(599, b"")
    assert (type(other), str(other)) == (CarillonError, "answered with 599")


def test_a_job_is_shown_in_two_lines_with_dates() -> None:
    zero: dict[Any, Any] = {str: "", int: 0, float: 0.0}
    empty = {name: zero.get(kind, {}) for name, kind in StoredJob.__annotations__.items()}
    known = empty | {
        "id": "j1", "app_id": "a1", "template_name": "like", "state": "running", "total_tokens": 1000, "sent": 400,
        "context": {"big": "x" * 1000}, "zones": (), "created_at_ns": 1_893_456_000 * 10**9, "created_by": "y" * 99,
    }  # fmt: skip
    assert repr(StoredJob(**known)) == (
        "StoredJob(id='j1', state='running', sent=400, total_tokens=1000, created_at='2030-01-01T00:00:00Z', "
        "app_id='a1', template_name='like', …)"
    )


def test_a_list_is_shown_by_its_length_and_a_name_whole() -> None:
    points = tuple(RatePoint(at=AWARE, per_second=1.0) for _ in range(3))
    assert repr(Rate(points=points)) == "Rate(points=<3 items>)"
    app = App(id="a1", name="n" * 60, bundle_id="com.example.n", updated_at_ns=1_500_000_000)
    told = f"App(id='a1', name='{'n' * 60}', updated_at='1970-01-01T00:00:01.500000Z', bundle_id='com.example.n')"
    assert repr(app) == told


@pytest.mark.parametrize("answer", [Group, StoredSchedule, JobPreview, StoredTemplate, StoredUser])
def test_other_answers_are_shown_as_shortly(answer: type[msgspec.Struct]) -> None:
    assert answer.__repr__ is StoredJob.__repr__


@pytest.mark.usefixtures("each_client")
async def test_a_search_without_a_recipient_names_what_it_needs() -> None:
    async with connect("http://127.0.0.1:1", attempts=1) as client:
        with pytest.raises(TypeError, match=r"find\(app_id, recipient\): give both"):
            async for _ in client.messages.find("ana@example.com"):
                pass


def test_every_answer_with_many_fields_is_shown_in_two_lines() -> None:
    answers = [each for each in vars(carillon).values() if isinstance(each, type) and issubclass(each, msgspec.Struct)]
    large = [each for each in answers if len(each.__struct_fields__) > 11 and not hasattr(each, "__post_init__")]
    assert StoredJob in large
    assert [each.__name__ for each in large if each.__repr__ is msgspec.Struct.__repr__] == []


def test_every_count_of_nanoseconds_is_a_datetime_too() -> None:
    counted = [
        (each, name.removesuffix("_ns"))
        for each in vars(carillon).values()
        if isinstance(each, type) and issubclass(each, msgspec.Struct)
        for name in each.__struct_fields__
        if name.endswith("_ns")
    ]
    assert (StoredJob, "created_at") in counted
    assert [(each.__name__, name) for each, name in counted if not isinstance(getattr(each, name), Instant)] == []
    bare = App(name="shop", bundle_id="com.example.shop")
    assert (bare.created_at, msgspec.structs.replace(bare, created_at_ns=10**9).created_at) == (
        None, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
    )  # fmt: skip


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_json_has_not_is_refused_by_its_field(number: float) -> None:
    """It would be sent as null."""
    body = PushJob(service="apns", template="like", context={"scores": [{"of_ana": number}]})
    with pytest.raises(ValueError, match=r"context\.scores\[0\]\.of_ana: JSON has no"):
        body.encoded()


@pytest.mark.parametrize("kind", [Carillon, AsyncCarillon])
def test_help_shows_the_arguments_of_every_call(kind: type[Carillon] | type[AsyncCarillon]) -> None:
    for name, resource in vars(kind("http://127.0.0.1:1")).items():
        if isinstance(resource, Resource):
            shown = pydoc.plain(pydoc.render_doc(resource))
            assert "(...)" not in shown, name
            methods = inspect.getmembers(type(resource), lambda each: isinstance(each, call | listing))
            for method, _ in methods:
                assert f" {method}(self" in shown, (name, method)
                assert "self" not in inspect.signature(getattr(resource, method)).parameters, (name, method)


def test_a_signature_is_that_of_the_client_at_hand() -> None:
    jobs = Carillon("http://127.0.0.1:1").jobs
    create, listed = inspect.signature(jobs.create), inspect.signature(jobs.list)
    assert [*create.parameters] == ["app_id", "job", "idempotency_key", "reason"]
    assert create.return_annotation is StoredJob
    assert [*listed.parameters][:3] == ["app_id", "template", "limit"]
    assert listed.return_annotation == Iterator[StoredJob]
    assert [*inspect.signature(AsyncCarillon("http://127.0.0.1:1").jobs.create).parameters] == [*create.parameters]


def test_the_stub_has_the_names_that_are_loaded_at_their_first_use() -> None:
    stub = ast.parse((Path(carillon.__file__).parent / "__init__.pyi").read_text("utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    told = {alias.name: node.module for node in imports for alias in node.names}
    assert {name: f"carillon.{module}" for name, module in vars(carillon)["_MODULES"].items()} == told
    assert all(getattr(carillon, name) is not None for name in dir(carillon))
