"""What messages say once their tags are filled, and in which groups they are made together."""

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.jobs.rules.templates import Template
from shared.messages.rules.contents import content_flaw, ends_of_groups, find_flaws
from shared.messages.rules.credentials import Credential
from shared.messages.rules.rendering import MAX_BODY_CHARACTERS, MessageTexts

MOST, CHARACTERS = 200, 256 * 1024


@given(st.lists(st.integers(0, 1024 * 1024) | st.integers(0, 300), max_size=500))
def test_groups_are_small_and_have_everybody(lengths: list[int]) -> None:
    ends = [*ends_of_groups(lengths)]
    assert (ends[0], ends[-1]) == (0, len(lengths))
    for first, end in pairwise(ends):
        assert first < end <= first + MOST
        assert sum(lengths[first:end]) <= CHARACTERS or end == first + 1


def test_small_messages_are_made_a_few_hundred_at_a_time() -> None:
    assert [*ends_of_groups([100] * 500)] == [0, 200, 400, 500]
    assert [*ends_of_groups([])] == [0]


def account(kind: str, **fields: Any) -> Credential:
    at = datetime(2026, 12, 24, tzinfo=UTC)
    return Credential(
        id="c", app_id="a", name="c", kind=kind, fields=fields, rate=1, max_in_flight=20, test_recipient="ana",
        created_by="me", created_at=at, updated_at=at,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["smtp", "ses", "sendgrid"])
def test_a_mail_has_a_subject_and_a_text(kind: str) -> None:
    for content in ({"subject": "Hi", "text": "a"}, {"subject": "Hi", "html": "a", "text": " "}):
        assert content_flaw(content, account(kind)) == ""
    for content in ({"subject": " \n", "text": "a"}, {"text": "a"}):
        assert content_flaw(content, account(kind)) == "a mail needs a subject"
    for content in ({"subject": "Hi", "text": "\n", "html": ""}, {"subject": "Hi"}):
        assert content_flaw(content, account(kind)) == "a mail needs text, html or both"


def test_an_sms_is_neither_empty_nor_too_long() -> None:
    for text in ("a", "x" * 1_600):
        assert content_flaw({"text": text}, account("twilio")) == ""
    for text in ("", " \n", "x" * 1_601):
        assert content_flaw({"text": text}, account("twilio")) == "an SMS needs 1 to 1,600 characters"


def test_each_variable_of_a_content_template_is_filled() -> None:
    sid = "HX" + "0" * 32
    for variables in ({}, {"1": "a"}, {"1": "x" * 1_600, "name": "Ana"}):
        assert content_flaw({"contentSid": sid, "contentVariables": variables}, account("twilio")) == ""
    assert content_flaw({"contentSid": sid}, account("twilio")) == ""
    for value in ("", " \n", "x" * 1_601):
        told = content_flaw({"contentSid": sid, "contentVariables": {"1": "a", "2": value}}, account("twilio"))
        assert told == "contentVariables.2 needs 1 to 1,600 characters"
    told = content_flaw({"contentSid": sid, "contentVariables": ["a"]}, account("twilio"))
    assert told == "contentVariables must be an object whose values are texts"


def test_a_payload_has_so_many_bytes() -> None:
    around = len('{"aps":""}')
    for fields, most in (({}, 4_096), ({"pushType": "alert"}, 4_096), ({"pushType": "voip"}, 5_120)):
        fits = {"aps": "x" * (most - around)}
        assert content_flaw(fits, account("apns", **fields)) == ""
        told = content_flaw({"aps": fits["aps"] + "é"}, account("apns", **fields))
        assert told == f"the payload has {most + 2:,} bytes; at most {most:,} are allowed"
    assert content_flaw({"data": {"k": "x" * 4_095}}, account("fcm")) == ""
    assert (
        content_flaw({"data": {"k": "x" * 4_096}}, account("fcm"))
        == "the data has 4,097 bytes; at most 4,096 are allowed"
    )
    assert content_flaw({"notification": {"title": "Hi"}}, account("fcm")) == ""


@pytest.mark.parametrize("kind", ["http", "sandbox"])
def test_others_take_anything(kind: str) -> None:
    assert content_flaw({"text": ""}, account(kind)) == ""


def test_the_messages_of_a_batch_are_judged_as_each_says() -> None:
    body = {"text": "{{text}}{{more}}"}
    texts = MessageTexts([Template(id="t", app_id="a", name="n", locale="en", body=body)], {"more": ""}, locale="en")
    columns = {"text": ["Hi", " ", "x" * 1_601, "", "x" * (MAX_BODY_CHARACTERS + 1), *["a"] * 400, ""]}
    lengths = texts.measure(columns, len(columns["text"]))
    found = [*find_flaws(texts, columns, lengths, account("twilio"))]
    rule = "an SMS needs 1 to 1,600 characters"
    assert {place: why for some in found for place, why in some.items()} == {
        1: rule, 2: rule, 3: rule, 4: "the message would be too large", 405: rule,
    }  # fmt: skip
    assert len(found) > 2, "group by group"
    assert [*find_flaws(texts, columns, lengths, account("http"))] == [{4: "the message would be too large"}]
