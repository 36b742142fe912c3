"""Words and figures on pages of templates and new jobs."""

from typing import Any

import pytest

from services.api.jobs.pages.job_list import tell_in_zone
from services.api.jobs.pages.making import count_reached
from services.api.jobs.pages.templates import message_of, notification_of


@pytest.mark.parametrize(
    ("record", "shown"),
    [
        ({"Payload": {"aps": {"alert": "Hi"}}}, {"title": "", "body": "Hi"}),
        ({"Payload": {"aps": {"alert": {"title": "T", "body": 3}}}}, {"title": "T", "body": ""}),
        ({"data": {"title": "T", "body": "B"}}, {"title": "T", "body": "B"}),
        ({"data": {"x": 1}}, None),
        ({"Payload": None}, None),
        (None, None),
    ],
)
def test_what_a_phone_shows_of_a_record(record: object, shown: object) -> None:
    assert notification_of(record) == shown


def test_devices_are_counted_or_estimated_or_unknown() -> None:
    assert count_reached({"audience": {"exact": True, "devices": 5, "estimatedDevices": 5}}) == 5
    assert count_reached({"audience": {"exact": False, "devices": 5, "estimatedDevices": 900}}) == 900
    messages = {"exact": False, "recipients": 5, "estimatedRecipients": None}
    assert count_reached({"audience": None, "messages": messages}) is None
    assert count_reached({"audience": None, "messages": messages | {"exact": True}}) == 5
    assert count_reached({"audience": None, "messages": None}) is None


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ({"subject": "Hi", "text": "There", "html": "<p>There"}, {"title": "Hi", "body": "There"}),
        ({"subject": "Hi", "html": "<p>There"}, {"title": "Hi", "body": ""}),
        ({"text": "There"}, {"title": "", "body": "There"}),
        ({"aps": {"alert": "There"}}, {"title": "", "body": "There"}),
        ({"notification": {"title": "Hi"}}, {"title": "Hi", "body": ""}),
        ({"text": 3}, None),
        (None, None),
    ],
)
def test_a_message_is_shown_as_its_recipient_reads_it(content: Any, shown: dict[str, str] | None) -> None:
    assert message_of(content) == shown


@pytest.mark.parametrize(
    ("zone", "told"),
    [
        ("+0545", "2026-12-25 01:45:00 in UTC+05:45"),
        ("-0330", "2026-12-24 16:30:00 in UTC\N{MINUS SIGN}03:30"),
        ("rest", ""),
        ("", ""),
    ],
)
def test_a_time_is_told_by_the_clocks_of_a_zone(zone: str, told: str) -> None:
    assert tell_in_zone(zone, "2026-12-24T20:00:00Z") == told
    assert tell_in_zone(zone, None) == ""
