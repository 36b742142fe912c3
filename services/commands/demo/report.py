"""What the demo found, and whether it is what Carillon promises: one record a device, and every answer counted."""

from services.commands.demo.story import Story
from shared.audience import devices


def faults(outcome: Story) -> list[str]:
    """A sentence for each promise that was not kept."""
    return [sentence for wrong, sentence in _checks(outcome) if wrong]


def _checks(outcome: Story) -> list[tuple[bool, str]]:
    total, job = outcome.seeded.devices, outcome.job
    expected = {devices.token(number) for number in range(1, total + 1)}
    missing = len(expected - outcome.tokens.keys())
    strange = len(outcome.tokens.keys() - expected)
    repeated = sum(count > 1 for count in outcome.tokens.values())
    return [
        (not outcome.in_time, "the job, or the count of its answers, did not end in time"),
        (missing > 0, f"{missing:,} devices got no record"),
        (repeated > 0, f"{repeated:,} devices got more than one record"),
        (strange > 0, f"{strange:,} records went to devices that there are not"),
        (job["sent"] != total, f"the job says that it sent {job['sent']:,} of {total:,} records"),
        (sum(job["locales"].values()) != total, f"the job's locales do not add up to {total:,}: {job['locales']}"),
        (
            job["feedbacks"] != dict(outcome.answers),
            f"the job counted {job['feedbacks']}, the receiver answered {dict(outcome.answers)}",
        ),
    ]


def summary(outcome: Story) -> str:
    """What happened, as a text for people."""
    job, received = outcome.job, outcome.tokens.total()
    rate = received / outcome.last_record if received else 0.0
    lines = {
        "sent": f"{job['sent']:,} records to {outcome.seeded.devices:,} devices",
        "per locale": _counts(job["locales"]),
        "feedback": _counts(job["feedbacks"]),
        "first record": f"{outcome.first_record:.2f} s after the call" if received else "none",
        "last record": f"{outcome.last_record:.2f} s after the call, {rate:,.0f} records/s" if received else "none",
        "all counted": f"{outcome.counted:.2f} s after the call",
    }
    return "\n".join(f"  {name:<13} {text}" for name, text in lines.items())


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items(), key=lambda item: -item[1])) or "none"
