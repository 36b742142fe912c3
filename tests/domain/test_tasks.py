"""Tasks come out as they went in, and whatever is no task is poisoned."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.errors import Poisoned
from shared.domain.tasks import QUEUES, FinishJob, PlanJob, SendBatch, Task, decode, encode, queue_of

tasks = st.one_of(
    st.builds(PlanJob, st.text(max_size=80)),
    st.builds(FinishJob, st.text(max_size=80)),
    st.builds(SendBatch, st.text(max_size=80), st.integers(0, 2**31), st.integers(0, 2**31)),
)


@given(tasks)
def test_a_task_comes_out_as_it_went_in(task: Task) -> None:
    assert decode(encode(task)) == task
    assert queue_of(task) in QUEUES


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps).map(str.encode)
)
def test_noise_is_poisoned(body: bytes) -> None:
    with pytest.raises(Poisoned):
        decode(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"type":"plan"}',
        b'{"type":"plan","job_id":7}',
        b'{"type":"plan","job_id":"j","version":2}',
        b'{"type":"unknown","job_id":"j","version":1}',
        b'{"type":"send","job_id":"j","ordinal":"0","turn":1,"version":1}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_near_misses_are_poisoned(body: bytes) -> None:
    with pytest.raises(Poisoned):
        decode(body)
