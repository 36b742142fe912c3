"""The owners of a job's occurrences come back as they were written, and nothing else is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.clock.rules.occurrences import read_owner
from shared.jobs.rules.jobs import (
    BATCH,
    JOB,
    JobStage,
    batch_owner,
    job_owner,
    read_batch_owner,
    read_job_owner,
)

keys = st.builds(lambda id_, incarnation: f"{id_}{incarnation}", st.uuids(), st.sampled_from(["", ".5f3a"]))


@given(keys, st.sampled_from(JobStage))
def test_the_owner_of_a_stage_comes_back(key: str, stage: JobStage) -> None:
    owner = job_owner(key, stage)
    assert read_job_owner(owner) == (key, stage)
    assert read_owner(owner).kind == JOB


def test_owners_are_the_same_in_every_release() -> None:
    # Occurrences are stored with them.
    assert [job_owner("j.x", stage) for stage in JobStage] == [
        "job/j.x/start",
        "job/j.x/plan",
        "job/j.x/finish",
        "job/j.x/mail",
    ]
    assert batch_owner("j.x", 7) == "batch/j.x/7"


@given(keys, st.integers(0, 10**9))
def test_the_owner_of_a_batch_comes_back(key: str, ordinal: int) -> None:
    owner = batch_owner(key, ordinal)
    assert read_batch_owner(owner) == (key, ordinal)
    assert read_owner(owner).kind == BATCH


@pytest.mark.parametrize("text", ["", "job", "job/1", "job/1/other", "batch/1/start", "user/1/start", "jobs/1/start"])
def test_other_owners_of_stages_are_not_read(text: str) -> None:
    with pytest.raises(ValueError):
        read_job_owner(text)


@pytest.mark.parametrize("text", ["", "batch/1/x", "batch/1", "job/1/7"])
def test_other_owners_of_batches_are_not_read(text: str) -> None:
    with pytest.raises(ValueError):
        read_batch_owner(text)
