"""The owners of a job's occurrences: one of its stages, or a batch that is tried again.

job/<key of the job>/<stage>
batch/<key of the job>/<ordinal>
"""

from enum import StrEnum

JOB = "job"
BATCH = "batch"


class JobStage(StrEnum):
    START = "start"  # a `startsAt`
    PLAN = "plan"  # planning that is tried again
    FINISH = "finish"  # closing that is tried again
    MAIL = "mail"  # mails that are tried again


def job_owner(job_key: str, stage: JobStage) -> str:
    return f"{JOB}/{job_key}/{stage}"


def batch_owner(job_key: str, ordinal: int) -> str:
    return f"{BATCH}/{job_key}/{ordinal}"


def read_job_owner(owner: str) -> tuple[str, JobStage]:
    job_key, stage = _parts(owner, JOB)
    return job_key, JobStage(stage)


def read_batch_owner(owner: str) -> tuple[str, int]:
    job_key, ordinal = _parts(owner, BATCH)
    return job_key, int(ordinal)


def _parts(owner: str, kind: str) -> tuple[str, str]:
    found, _, rest = owner.partition("/")
    thing, _, detail = rest.partition("/")
    if found != kind:
        raise ValueError(f"not the owner of a {kind}: {owner!r}")
    return thing, detail
