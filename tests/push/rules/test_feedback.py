"""What a feedback record says, against an oracle that is written plainly; and the arithmetic of folding."""

import json
import uuid
from collections import ChainMap, Counter
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.core.documents import Position
from shared.core.errors import Unavailable
from shared.push.rules import feedback
from shared.push.rules.feedback import CountedPush, Fold, Skip, Skipped, admit_outcomes, by_job, read

JOB = str(uuid.uuid4())
METADATA = {"jobId": JOB, "muid": "m", "pushTime": 1764000000, "templateName": "like_2", "game": "mygame"}
APNS = {
    "Sent": False,
    "StatusCode": 400,
    "Reason": "BadDeviceToken",
    "ApnsID": "x",
    "Err": {"Key": "bad-device-token", "Description": "BadDeviceToken"},
    "DeviceToken": "f" * 64,
    "timestamp": 1764000001,
    "metadata": METADATA,
    "Notification": {"aps": {"alert": "hello"}, "m": {}, "M": {}, "templateName": "like"},
}
GCM = {
    "from": "token",
    "message_id": "0:17",
    "message_type": "ack",
    "category": "",
    "timestamp": 1764000001,
    "metadata": METADATA | {"platform": "gcm", "hostname": "h"},
}


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("record", "outcome"),
    [
        pytest.param(APNS, "bad-device-token", id="apns failure"),
        pytest.param(APNS | {"Err": None, "Reason": ""}, "ack", id="legacy apns success"),
        pytest.param(APNS | {"Err": {}}, "ack", id="apns with an empty error"),
        pytest.param(APNS | {"error": "SOMETHING"}, "bad-device-token", id="apns ignores the error text"),
        pytest.param(APNS | {"message_id": ""}, "bad-device-token", id="an empty message id is none"),
        pytest.param(APNS | {"message_id": None}, "bad-device-token", id="a null message id is none"),
        pytest.param(GCM, "ack", id="legacy gcm success"),
        pytest.param(GCM | {"error": None}, "ack", id="gcm with a null error"),
        pytest.param(GCM | {"error": ""}, "ack", id="gcm with an empty error"),
        pytest.param(GCM | {"error": "BAD_REGISTRATION"}, "BAD_REGISTRATION", id="legacy gcm failure"),
        pytest.param(GCM | {"error": "E", "Err": {"Key": "k"}}, "E", id="gcm ignores Err"),
        pytest.param({"metadata": {"jobId": JOB}}, "ack", id="the least"),
        pytest.param({"METADATA": {"JOBID": JOB}, "ERR": {"KEY": "k"}}, "k", id="upper case"),
        pytest.param({"metadata": {"jobId": JOB}, "ERR": {"KEY": "k"}}, "k", id="an error in upper case alone"),
        pytest.param({"metadata": {"jobId": JOB}, "Message_ID": "1", "Error": "E"}, "E", id="gcm in mixed case"),
        pytest.param(APNS | {"Message_Id": "1", "error": "E"}, "E", id="a message id in mixed case makes it gcm"),
        pytest.param(APNS | {"Err": {"Key": "é" * 99}}, "é" * 64, id="a long outcome is cut"),
        pytest.param(APNS | {"Err": {"Key": "a.$b\0"}}, "a.$b\0", id="any text is an outcome"),
    ],
)
def test_a_record_counts(record: dict[str, Any], outcome: str) -> None:
    assert read(encoded(record)) == CountedPush(JOB, outcome)
    assert read(json.dumps(record, indent=2, ensure_ascii=False).encode()) == CountedPush(JOB, outcome)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        pytest.param(None, Skip.EMPTY, id="tombstone"),
        pytest.param(b"", Skip.EMPTY, id="empty"),
        pytest.param(b"not JSON", Skip.UNREADABLE, id="text"),
        pytest.param(encoded(APNS)[:-1], Skip.UNREADABLE, id="cut off"),
        pytest.param(b"\xff\xfe\x00", Skip.UNREADABLE, id="bytes"),
        pytest.param(b"[1]", Skip.UNREADABLE, id="a list"),
        pytest.param(b"null", Skip.UNREADABLE, id="null"),
        pytest.param(b"[" * 100_000, Skip.UNREADABLE, id="deep"),
        pytest.param(b'{"x":' * 100_000 + b"1" + b"}" * 100_000, Skip.UNREADABLE, id="deep in a field"),
        pytest.param(b'{"metadata":{"jobId":"\\udc00"}}', Skip.UNREADABLE, id="half a surrogate pair"),
        pytest.param(b'{"metadata":{"jobId":"\xed\xa0\x80"}}', Skip.UNREADABLE, id="a surrogate in UTF-8"),
        pytest.param(
            encoded({"from": "t", "error": "DEVICE_UNREGISTERED", "error_description": "x"}), Skip.NO_JOB, id="fcm"
        ),
        pytest.param(encoded({}), Skip.NO_JOB, id="nothing"),
        pytest.param(encoded({"metadata": None}), Skip.NO_JOB, id="null metadata"),
        pytest.param(encoded({"metadata": "x"}), Skip.NO_JOB, id="metadata of another type"),
        pytest.param(encoded({"metadata": {"jobId": ""}}), Skip.NO_JOB, id="an empty job"),
        pytest.param(encoded({"metadata": {"jobId": 7}}), Skip.BAD_JOB, id="a number for a job"),
        pytest.param(encoded({"metadata": {"jobId": {"a": []}}}), Skip.BAD_JOB, id="an object for a job"),
        pytest.param(encoded({"metadata": {"jobId": "j" * 65}}), Skip.BAD_JOB, id="a long job"),
        pytest.param(encoded(APNS | {"Err": {"Description": "x"}}), Skip.NO_OUTCOME, id="Err without Key"),
        pytest.param(encoded(APNS | {"Err": {"Key": None}}), Skip.NO_OUTCOME, id="a null Key"),
        pytest.param(encoded(APNS | {"Err": {"Key": 5}}), Skip.NO_OUTCOME, id="a number for a Key"),
        pytest.param(encoded(APNS | {"Err": "text"}), Skip.NO_OUTCOME, id="Err of another type"),
        pytest.param(encoded(APNS | {"Err": None, "error": "X"}), Skip.NO_OUTCOME, id="apns with an error text only"),
        pytest.param(encoded(GCM | {"error": 5}), Skip.NO_OUTCOME, id="a number for an error"),
        pytest.param(encoded(GCM | {"Err": {"Key": "k"}}), Skip.NO_OUTCOME, id="gcm with Err only"),
    ],
)
def test_a_record_is_skipped_for_a_reason(value: bytes | None, reason: Skip) -> None:
    assert read(value) == Skipped(reason)


def oracle(record: Any) -> CountedPush | Skip:
    """The rule in the plainest words, on the decoded record."""

    def get(fields: Any, name: str) -> Any:
        if not isinstance(fields, dict):
            return None
        if name in fields:
            return fields[name]
        spelt = [key for key in fields if key.lower() == name.lower()]
        return fields[spelt[0]] if spelt else None

    if not isinstance(record, dict):
        return Skip.UNREADABLE
    job_id = get(get(record, "metadata"), "jobId")
    if not job_id:
        return Skip.NO_JOB
    if not isinstance(job_id, str) or len(job_id) > 64:
        return Skip.BAD_JOB
    if not get(record, "error") and not get(record, "Err"):
        return CountedPush(job_id, "ack")
    named = get(record, "error") if get(record, "message_id") else get(get(record, "Err"), "Key")
    return CountedPush(job_id, named[:64]) if named and isinstance(named, str) else Skip.NO_OUTCOME


def spelt(name: str) -> st.SearchStrategy[str]:
    other = st.lists(st.booleans(), min_size=len(name), max_size=len(name)).map(
        lambda ups: "".join(letter.upper() if up else letter.lower() for letter, up in zip(name, ups, strict=True))
    )
    return st.just(name) | other


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=70)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def fields(*pairs: tuple[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with some of these fields in some spelling, each with what it should hold or anything else."""
    entries = [st.none() | st.tuples(spelt(name), value | value | anything) for name, value in pairs]
    extra = st.dictionaries(texts, anything, max_size=2)
    return st.tuples(extra, st.tuples(*entries)).flatmap(
        lambda parts: st.permutations([*parts[0].items(), *(entry for entry in parts[1] if entry)]).map(dict)
    )


records = fields(
    ("metadata", fields(("jobId", st.just(JOB) | texts))),
    ("message_id", st.just("0:1") | st.none() | st.just("")),
    ("error", st.none() | texts),
    ("Err", st.none() | fields(("Key", texts))),
    ("error", texts),
)


@given(record=records | anything)
@example(record=APNS)
def test_reading_agrees_with_the_oracle(record: Any) -> None:
    expected = oracle(record)
    said = read(encoded(record))
    assert said == (Skipped(expected) if isinstance(expected, Skip) else expected)


MESSAGE_IDS: list[dict[str, Any]] = [
    {}, {"message_id": "1"}, {"message_id": ""}, {"message_id": None}, {"Message_Id": "1"},
]  # fmt: skip
ERROR_TEXTS: list[dict[str, Any]] = [
    {}, {"error": "E"}, {"error": ""}, {"error": None}, {"ERROR": "E"}, {"Error": None},
    {"ERROR": "E", "error": None}, {"ERROR": "E", "error": "F"},
]  # fmt: skip
ERRORS: list[dict[str, Any]] = [
    {}, {"Err": {"Key": "K"}}, {"Err": {"key": "K"}}, {"Err": {}}, {"Err": None}, {"ERR": {"Key": "K"}}, {"err": None},
    {"err": {"Key": "K"}, "Err": None}, {"err": {"Key": "K"}, "Err": {"KEY": "k", "Key": "L"}},
]  # fmt: skip
JOBS: list[dict[str, Any]] = [
    {"metadata": {"jobId": "j" * 64}}, {"METADATA": {"jobid": "j" * 64}}, {"metadata": {"JOBID": "k", "jobId": "j"}},
    {"metadata": {"jobId": "j" * 65}},
]  # fmt: skip


@pytest.mark.parametrize("job", JOBS)
def test_every_spelling_of_every_field_is_read_beside_all_others(job: dict[str, Any]) -> None:
    for parts in product(MESSAGE_IDS, ERROR_TEXTS, ERRORS):
        record = {"note": 'an "error", an "Err"', **dict(ChainMap(*parts)), **job}
        expected = oracle(record)
        assert read(encoded(record)) == (Skipped(expected) if isinstance(expected, Skip) else expected), record


def test_operators_read_the_same_reasons_in_every_release() -> None:
    assert [*Skip] == ["empty", "unreadable", "no-job", "bad-job", "no-outcome"]


@given(value=st.binary(max_size=200) | texts.map(str.encode))
def test_reading_never_raises(value: bytes) -> None:
    assert isinstance(read(value), CountedPush | Skipped)


@given(value=st.data())
def test_damaged_records_never_raise(value: st.DataObject) -> None:
    whole = encoded(value.draw(records))
    cut, byte = value.draw(st.integers(0, len(whole))), value.draw(st.binary(max_size=2))
    assert isinstance(read(whole[:cut] + byte + whole[cut + 1 :]), CountedPush | Skipped)


@given(chunks=st.lists(st.lists(records, max_size=5), max_size=5), start=st.integers(0, 10**12))
def test_a_fold_is_the_sum_of_its_records(chunks: list[list[Any]], start: int) -> None:
    fold = Fold(Position(start), "log")
    expected = [oracle(record) for chunk in chunks for record in chunk]
    end = start
    for chunk in chunks:
        end += len(chunk)
        fold.add([encoded(record) for record in chunk], end)
    assert (fold.first, fold.stop, fold.moved) == (start, Position(end, "log"), end != start)
    assert fold.counts == Counter((said.job_id, said.outcome) for said in expected if isinstance(said, CountedPush))
    assert fold.skipped == Counter(said for said in expected if isinstance(said, Skip))
    assert fold.counted + sum(fold.skipped.values()) == len(expected)


@pytest.mark.parametrize(
    ("stored", "log", "first", "stop"),
    [
        (Position(), "", 0, Position(5)),
        (Position(), "a", 0, Position(5, "a")),
        (Position(5), "a", 5, Position(5, "a")),
        (Position(5, "a"), "a", 5, Position(5, "a")),
        (Position(5, "a"), "", 5, Position(5, "a")),
        (Position(5, "a"), "b", 0, Position(5, "b", ("a",))),
        (Position(5, "b", ("a",)), "", 5, Position(5, "b", ("a",))),
        (Position(5, "b", ("a",)), "c", 0, Position(5, "c", ("a", "b"))),
        (Position(5, "b", ("b",)), "b", 5, Position(5, "b", ("b",))),
        (Position(5, "", ("a",)), "b", 5, Position(5, "b", ("a",))),
    ],
)
def test_a_fold_begins_at_the_beginning_of_a_log_that_was_never_counted(
    stored: Position, log: str, first: int, stop: Position
) -> None:
    fold = Fold(stored, log)
    assert (fold.start, fold.first, fold.moved) == (stored, first, False)
    fold.add([], 5)
    assert (fold.stop, fold.moved) == (stop, first != 5)


def test_a_log_that_was_left_is_never_begun_again() -> None:
    stored = Position(5, "log-0")
    for number in range(1, 12):
        stored = Fold(stored, f"log-{number}").stop
    for number in range(3, 11):
        with pytest.raises(Unavailable, match=f"log-{number}$"):
            Fold(stored, f"log-{number}")
    assert len(stored.left) == 8


def test_a_fold_is_full_at_its_limit_of_keys() -> None:
    fold = Fold(Position(), "")
    fold.add([encoded({"metadata": {"jobId": f"j{number}"}}) for number in range(feedback.MAX_KEYS - 1)], 1)
    assert not fold.full
    fold.add([encoded({"metadata": {"jobId": "j1"}}), encoded({"metadata": {"jobId": "last"}})], 2)
    assert fold.full


def test_counts_by_job_are_in_the_order_of_ids() -> None:
    assert list(by_job({("b", "ack"): 1, ("a", "x"): 2, ("b", "x"): 3}).items()) == [
        ("a", {"x": 2}),
        ("b", {"ack": 1, "x": 3}),
    ]


def test_further_outcomes_are_other_and_the_frequent_come_first() -> None:
    assert admit_outcomes(["a", "b"], {"b": 1, "c": 2, "d": 9}, 3) == {"b": 1, "d": 9, "other": 2}
    assert admit_outcomes(["a", "b", "c", "other"], {"other": 1, "d": 1}, 3) == {"other": 2}
    assert admit_outcomes(["a", "b", "c", "d", "e"], {"e": 1, "f": 1}, 3) == {"e": 1, "other": 1}
    assert admit_outcomes(["a", "other"], {"d": 1}, 2) == {"d": 1}, "`other` needs no place"
    assert admit_outcomes([], {"other": 9, "a": 1}, 1) == {"other": 9, "a": 1}
    assert admit_outcomes([], {"b": 1, "a": 1}, 1) == {"a": 1, "other": 1}, "one has the place, whoever counts"


names = st.sampled_from([*"abcdefgh", "other"])


@given(present=st.sets(names), new=st.dictionaries(names, st.integers(1, 9)), most=st.integers(1, 8))
def test_nothing_is_lost_among_the_outcomes(present: set[str], new: dict[str, int], most: int) -> None:
    increments = admit_outcomes(present, new, most)
    named = (present | increments.keys()) - {"other"}
    assert sum(increments.values()) == sum(new.values())
    assert len(named) <= max(most, len(present - {"other"}))
    assert all(increments[name] == count for name, count in new.items() if name in present and name != "other")
