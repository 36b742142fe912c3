"""Tasks come out as they went in, and whatever is no task is poisoned."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.clock.rules.callbacks import CallTarget
from shared.console.rules.bulk_actions import RunBulkAction
from shared.core.errors import Poisoned
from shared.core.tasks import TASK_PREFIXES, Task, decode, encode, next_try
from shared.jobs.rules.jobs import FinishJob, PlanJob, SendBatch, SendMail
from shared.messages.rules.singles import SendMessages, SendSingles
from tests.queues import QUEUES

KINDS: tuple[type[Task], ...] = (
    PlanJob,
    SendBatch,
    FinishJob,
    SendMail,
    CallTarget,
    RunBulkAction,
    SendMessages,
    SendSingles,
)

counts = {"attempt": st.integers(0, 2**31 - 1), "faults": st.integers(0, 2**31 - 1)}
tasks = st.one_of(
    st.builds(PlanJob, st.text(max_size=80), **counts),
    st.builds(FinishJob, st.text(max_size=80), **counts),
    st.builds(SendBatch, st.text(max_size=80), st.integers(0, 2**31), st.integers(0, 2**31), **counts),
    st.builds(SendSingles, credential_id=st.text(max_size=80), **counts),
    st.builds(SendMessages, st.text(max_size=80), st.integers(0, 2**31), st.integers(0, 2**31), **counts),
    st.builds(CallTarget, st.text(max_size=32), st.text(max_size=32)),
    st.builds(RunBulkAction, st.text(max_size=80)),
)


@given(tasks)
def test_a_task_comes_out_as_it_went_in(task: Task) -> None:
    assert decode(encode(task), type(task)) == task
    assert task.queue in QUEUES


@pytest.mark.parametrize(
    ("body", "task"),
    [
        (b'{"type":"plan","job_id":"j","version":1}', PlanJob("j")),
        (b'{"type":"send","job_id":"j","ordinal":0,"turn":1,"version":1}', SendBatch("j", 0, 1)),
        (b'{"type":"finish","job_id":"j","version":1}', FinishJob("j")),
        (b'{"type":"mail","job_id":"j","kind":"created","at":7,"version":1}', SendMail("j", "created", 7)),
    ],
)
def test_a_task_that_tells_no_tries_is_at_its_first(body: bytes, task: Task) -> None:
    assert decode(body, type(task)) == task


def test_each_return_is_counted_and_faults_apart() -> None:
    task: Task = SendBatch("j", 5, 2)
    for fault in (False, True, False):
        task = next_try(task, fault=fault)
    assert task == SendBatch("j", 5, 2, attempt=3, faults=1)
    assert next_try(CallTarget("o", "t"), fault=True) == CallTarget("o", "t")


def test_every_queue_of_tasks_is_closed_to_callbacks() -> None:
    queues = {kind.queue for kind in KINDS}
    of_messages = {"message.batch", "message.single"}
    assert queues == {"push.split", "push.batch", "push.finish", "push.mail", "sched.call", "ops.bulk"} | of_messages
    assert all(queue.startswith(TASK_PREFIXES) for queue in queues)
    assert TASK_PREFIXES == ("push.", "message.batch", "message.single", "sched.", "carillon.", "ops.bulk", "bus.")


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps).map(str.encode)
)
def test_noise_is_poisoned(body: bytes) -> None:
    for kind in KINDS:
        with pytest.raises(Poisoned):
            decode(body, kind)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"job_id":"j","version":1}',
        b'{"type":"none","version":1}',
        b'{"occurrence_id":"o","token":"t"}',
        b'{"type":"plan"}',
        b'{"type":"plan","job_id":7}',
        b'{"type":"plan","job_id":"j","version":2}',
        b'{"type":"unknown","job_id":"j","version":1}',
        b'{"type":"send","job_id":"j","ordinal":"0","turn":1,"version":1}',
        b'{"type":"plan","job_id":"j","version":1,"attempt":-1}',
        b'{"type":"finish","job_id":"j","version":1,"faults":1e30}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"x":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"type":"send","job_id":"\xff","ordinal":1,"turn":1}',
        b'{"type":"\xff"}',
    ],
)
def test_near_misses_are_poisoned(body: bytes) -> None:
    for kind in KINDS:
        with pytest.raises(Poisoned):
            decode(body, kind)
