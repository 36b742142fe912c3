"""What is counted of recipients: once for a batch, all of them, by outcome and reason."""

import secrets

import pytest
from msgspec.structs import replace

from services.worker.push import recipients
from shared.audience.rules.audiences import KeyRange
from shared.jobs.rules.batches import Batch, BatchPart, BatchStatus, Receipt
from shared.jobs.rules.jobs import Job
from tests.jobs.made import a_job
from tests.samples import sample, samples

SECOND = 10**9


def settled(receipt: Receipt, status: BatchStatus = BatchStatus.SENT) -> Batch:
    return Batch(job_id="j", ordinal=0, range=KeyRange(0, 100), size=100, status=status, receipt=receipt)


def counted(job: Job) -> dict[tuple[str, str], float]:
    return {
        (labels["outcome"], labels["reason"]): count
        for labels, count in samples("recipients_total")
        if (labels["app"], labels["service"]) == (job.app_name, job.service)
    }


@pytest.fixture
def job() -> Job:
    return a_job(app_name=f"t{secrets.token_hex(4)}", created_at=100 * SECOND)


def test_every_recipient_counts_once_by_what_became_of_it(job: Job) -> None:
    reasons = {"no-token": 3, "gone": 4, "no-template": 5, "too-large": 6}
    recipients.count_settled(
        job, settled(Receipt(sent=1, failed=11, skipped=7, held_out=8, unknown=9, reasons=reasons))
    )
    assert counted(job) == {
        ("sent", ""): 1,
        ("held_out", ""): 8,
        ("unknown", ""): 9,
        ("skipped", "no-token"): 3,
        ("skipped", "gone"): 4,
        ("failed", "no-template"): 5,
        ("failed", "too-large"): 6,
    }


def test_those_whose_reasons_found_no_room_count_too(job: Job) -> None:
    recipients.count_settled(job, settled(Receipt(failed=5, skipped=2, reasons={"fault": 3}), BatchStatus.FAILED))
    assert counted(job) == {("failed", "fault"): 3, ("failed", "other"): 2, ("skipped", "other"): 2}


def test_a_batch_of_a_job_that_is_gone_counts_under_no_app() -> None:
    before = sample("recipients_total", app="", service="", outcome="sent", reason="")
    recipients.count_settled(None, settled(Receipt(sent=2)))
    assert sample("recipients_total", app="", service="", outcome="sent", reason="") == before + 2


@pytest.mark.parametrize(
    ("ordinal", "number", "starts_at", "delay"),
    [(0, 1, 0, 30), (0, 1, 120 * SECOND, 10), (0, 1, 200 * SECOND, 0), (0, 2, 0, None), (1, 1, 0, None)],
)
def test_the_first_part_of_the_first_batch_tells_how_late_the_job_began(
    job: Job, ordinal: int, number: int, starts_at: int, delay: float | None
) -> None:
    before, spent = sample("job_start_delay_seconds_count"), sample("job_start_delay_seconds_sum")
    batch = replace(settled(Receipt()), ordinal=ordinal)
    recipients.count_part(replace(job, starts_at=starts_at), batch, BatchPart(Receipt(), number), 7, 130 * SECOND)
    assert sample("job_start_delay_seconds_count") - before == (delay is not None)
    assert sample("job_start_delay_seconds_sum") - spent == pytest.approx(delay or 0)
    assert sample("records_sent_total", app=job.app_name, service=job.service) == 7
