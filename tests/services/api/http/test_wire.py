"""Reading a body as Marathon does, for any body at all."""

import ipaddress
import json
import re
import string
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.api.http import bodies
from services.api.http.errors import content, problem_of
from services.api.http.identity import Proxies
from services.api.jobs.job_body import JobBody
from services.api.jobs.templates import TemplateBody
from shared.core.errors import Invalid
from shared.core.ids import read_uuid, time_ordered_id

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=10
)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=4)


def cased(data: st.DataObject, key: str) -> str:
    return "".join(data.draw(st.sampled_from([letter.lower(), letter.upper()])) for letter in key)


@given(
    data=st.data(), context=OBJECTS, expires_at=st.integers(-(2**63), 2**63 - 1), path=TEXT, rest=st.binary(max_size=20)
)
def test_what_was_meant_is_read_whatever_the_case_and_the_company(
    data: st.DataObject, context: dict[str, Any], expires_at: int, path: str, rest: bytes
) -> None:
    meant = {"context": context, "expiresAt": expires_at, "csvPath": path, "metadata": None, "x-unknown": [None]}
    body = json.dumps({cased(data, key): value for key, value in meant.items()}).encode()
    space = data.draw(st.text(" \t\r\n", max_size=3)).encode()
    job = bodies.read(space + body + rest, JobBody)
    assert job.context == context
    assert (job.expires_at, job.csv_path, job.metadata, job.starts_at) == (expires_at, path, {}, 0)


def problem_of_reading(read: Callable[[], object]) -> dict[str, Any] | None:
    """The problem document that a client gets, `None` where there is nothing wrong."""
    try:
        read()
    except Invalid as error:
        sent: dict[str, Any] = json.loads(content(problem_of(error)))
        return sent
    return None


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    problem = problem_of_reading(lambda: bodies.read(body, JobBody))
    assert problem is None or problem["status"] == 422


KEYS = st.sampled_from(["name", "BODY", "service", "id", "context"]) | st.text()
ANYTHING = st.recursive(
    LEAVES | st.text(max_size=5) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner),
    max_leaves=10,
)


@given(ANYTHING)
def test_any_json_is_read_or_refused_with_a_problem_that_can_be_sent(value: Any) -> None:
    body = json.dumps(value).encode()
    for problem in (
        problem_of_reading(lambda: bodies.read(body, JobBody)),
        problem_of_reading(lambda: list(bodies.read_list(body, TemplateBody))),
    ):
        assert problem is None or problem["reason"] == problem["detail"] != ""


@given(VALUES)
def test_what_is_written_is_the_same_json_in_one_line(value: Any) -> None:
    written = bodies.answer(value).content
    assert json.loads(written) == value
    assert written.endswith(b"\n")
    assert b"\n" not in written[:-1]


@given(st.uuids(), st.booleans())
def test_every_form_of_a_uuid_is_the_same_uuid(wanted: Any, upper: bool) -> None:
    for form in (str(wanted), wanted.hex, f"{{{wanted}}}"):
        assert read_uuid(form.upper() if upper else form, field="id") == str(wanted)
    assert read_uuid(wanted.urn, field="id") == str(wanted)


@given(st.text(string.hexdigits + "-{}_ +urn:id", max_size=45))
def test_no_other_text_is_a_uuid(text: str) -> None:
    plain = re.fullmatch(r"(?:urn:uuid:)?[0-9a-f-]{32,36}|\{[0-9a-f-]{36}\}", text, re.IGNORECASE)
    if plain is None:
        with pytest.raises(Invalid):
            read_uuid(text, field="id")


@given(st.integers(0, 2**60), st.integers(1_000, 2**50), st.integers(0, 2**62 - 1), st.integers(0, 2**62 - 1))
def test_a_later_id_sorts_behind_an_earlier_one(now: int, more: int, noise: int, other: int) -> None:
    assert time_ordered_id(now, noise) < time_ordered_id(now + more, other)


@given(st.ip_addresses())
def test_only_addresses_in_the_networks_are_trusted(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    inside = address.version == 4 and address in ipaddress.ip_network("10.0.0.0/8")
    assert Proxies(["10.0.0.0/8"]).trust(str(address)) == inside
    assert not Proxies([]).trust(str(address))


def test_a_body_that_is_nothing_but_beginnings_is_refused_before_it_is_read() -> None:
    """A million bytes of lists in lists would keep everybody else waiting for half a second."""
    deep = "[" * 60 + "]" * 60
    body = f'{{"name": "a", "body": {{"a": [{",".join([deep] * 8_000)}]}}}}'.encode()
    with pytest.raises(Invalid, match="over 100,000 opening brackets and braces"):
        bodies.read(body, TemplateBody)


def test_a_body_of_very_many_values_is_refused_before_it_is_read() -> None:
    body = b'{"name": "a", "body": {"a": [' + b"0," * 250_001 + b"0]}}"
    with pytest.raises(Invalid, match="over 250,000 commas"):
        bodies.read(body, TemplateBody)
