"""Records have the published shapes."""

import json
from typing import Any

import msgspec
import pytest

from shared.jobs.rules.jobs import Job
from shared.push.rules.records import (
    APNS,
    GCM,
    SERVICES,
    Push,
    RecordRules,
    Slot,
    frame,
)

JOB_ID = "1c9a2f0e-5d3b-4c58-9d53-0f6d2f1f7c11"
PUSH_TIME = 1_764_000_000
EXPIRES_AT = 1_893_456_000
SECOND = 1_000_000_000
RULES = RecordRules()


def a_job(service: str = APNS, **values: Any) -> Job:
    given: dict[str, Any] = {
        "id": JOB_ID,
        "app_id": "app",
        "app_name": "mygame",
        "service": service,
        "template_names": ("like",),
        "created_by": "someone@example.com",
        "group_id": "group",
    }
    return Job(**(given | values))


def record(job: Job, *, now: float = PUSH_TIME, body: Any = None, rules: RecordRules = RULES) -> dict[str, Any]:
    """One record, read again, of a device T of the user u1."""
    push = Push(job, "like", body or {"alert": "Ana liked your town"}, int(now * SECOND), rules)
    head, before_message_id, before_user_id, tail = frame(push)
    read: dict[str, Any] = json.loads(head + b"T" + before_message_id + b"M" + before_user_id + b"u1" + tail)
    return read


METADATA = {
    "jobId": JOB_ID,
    "muid": "M",
    "pushTime": PUSH_TIME,
    "pushType": "massive",
    "templateName": "like",
    "userId": "u1",
}


def test_apns_record_of_the_specification() -> None:
    job = a_job(metadata={"meta": "x"}, expires_at=EXPIRES_AT * SECOND)
    expected = {
        "DeviceToken": "T",
        "Payload": {"aps": {"alert": "Ana liked your town"}, "m": {"meta": "x"}, "templateName": "like"},
        "push_expiry": EXPIRES_AT,
        "metadata": METADATA,
    }
    assert record(job, rules=RecordRules(push_expiry="seconds")) == expected
    assert record(job) == expected | {"push_expiry": EXPIRES_AT * 1000}


def test_gcm_record_of_the_specification() -> None:
    job = a_job(GCM, metadata={"meta": "x"}, expires_at=EXPIRES_AT * SECOND)
    expected = {
        "to": "T",
        "data": {"alert": "Ana liked your town", "m": {"meta": "x"}, "templateName": "like"},
        "time_to_live": EXPIRES_AT,
        "dry_run": False,
        "message_id": "",
        "metadata": METADATA,
    }
    assert record(job, rules=RecordRules(time_to_live="absolute")) == expected
    assert record(job) == expected | {"time_to_live": 2_419_200, "push_expiry": EXPIRES_AT * 1000}


def test_unset_expiry_is_zero_for_apns_and_absent_for_gcm() -> None:
    assert record(a_job())["push_expiry"] == 0
    gcm = record(a_job(GCM))
    assert "time_to_live" not in gcm
    assert "push_expiry" not in gcm


@pytest.mark.parametrize(
    ("ahead", "seconds"), [(90.9, 90), (0.5, 0), (-3, 0), (2_419_200, 2_419_200), (2_419_201, 2_419_200)]
)
def test_time_to_live_is_what_remains(ahead: float, seconds: int) -> None:
    job = a_job(GCM, expires_at=EXPIRES_AT * SECOND)
    assert record(job, now=EXPIRES_AT - ahead)["time_to_live"] == seconds


@pytest.mark.parametrize("service", SERVICES)
def test_without_metadata_there_is_no_m(service: str) -> None:
    written = record(a_job(service))
    assert "m" not in (written["Payload"] if service is APNS else written["data"])


def test_our_keys_win_over_the_bodys_in_gcm_data() -> None:
    body = {"m": "theirs", "templateName": "theirs", "alert": "a"}
    assert record(a_job(GCM, metadata={"k": 1}), body=body)["data"] == {
        "alert": "a",
        "m": {"k": 1},
        "templateName": "like",
    }
    assert record(a_job(GCM), body=body)["data"]["m"] == "theirs"


@pytest.mark.parametrize("body", [{"a": {}}, {"a": {"b": {}, "c": 1}}, {"a": [], "b": "", "c": None}])
def test_what_is_empty_in_a_body_goes_out_as_it_is(body: dict[str, Any]) -> None:
    assert record(a_job(), body=body)["Payload"]["aps"] == body


def test_who_chooses_nothing_gets_the_choices_that_receivers_understand() -> None:
    assert RecordRules() == RecordRules(push_expiry="ms", time_to_live="remaining", max_record_bytes=1_000_000)


def test_people_know_the_services_by_their_platforms() -> None:
    assert {name: service.platform for name, service in SERVICES.items()} == {"apns": "iOS", "gcm": "Android"}


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize(
    ("metadata", "shown"),
    [({"dryRun": True}, True), ({"dryRun": False}, False), ({"dryRun": "true"}, None), ({}, None)],
)
def test_dry_run_is_shown_only_when_it_is_a_boolean(service: str, metadata: dict[str, Any], shown: bool | None) -> None:
    written = record(a_job(service, metadata=metadata))
    assert written["metadata"].get("dryRun") is shown
    assert written.get("dry_run", shown is True) is (shown is True)


def test_every_service_has_a_shape_that_can_be_framed() -> None:
    for service in SERVICES:
        assert len(frame(Push(a_job(service), "like", {"a": 1}, 0, RULES))) == len(Slot) + 1


def test_a_shape_with_slots_out_of_order_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def backwards(push: Push) -> dict[str, Any]:
        return dict(reversed(SERVICES[GCM].fields(push).items()))

    shape = msgspec.structs.replace(SERVICES[APNS], fields=backwards)
    monkeypatch.setitem(SERVICES, APNS, shape)
    with pytest.raises(AssertionError, match="apns"):
        record(a_job())
