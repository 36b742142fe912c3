"""Mails by SMTP and pushes by APNs, as jobs: how many a second one worker sends, ledger and all."""

from collections.abc import Mapping
from typing import Any

from shared.messages.rules.answers import Channel
from tests.bench.machine import Meter
from tests.bench.messages import closed, post_office
from tests.bench.place import Place
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.providers import accounts
from tests.providers.rules import Rule

_SECONDS = 15


async def measure(place: Place) -> list[Measured]:
    """One worker, and a provider that answers at once."""
    mail = {"subject": "Hi {{name}}", "text": "How do you do, {{name}}?", "html": "<p>How do you do, {{name}}?</p>"}
    push = {"aps": {"alert": {"title": "Hi", "body": "Hi {{name}}"}}}
    figures = [
        *await _measure_kind(place, "smtp", Channel.MAIL, mail, Rule(250), goal=400),
        *await _measure_kind(place, "apns", Channel.PUSH, push, Rule(200), goal=200),
    ]
    note = f"{_SECONDS} s at twice the goal's rate; from the first call to the last. Checked: each came once."
    return [Measured("mails and pushes", figures, [note])]


async def _measure_kind(
    place: Place, kind: str, channel: Channel, body: Mapping[str, Any], rule: Rule, *, goal: int
) -> list[Figure]:
    runs = [await _send_all(place, kind, channel, body, rule, rate=2.0 * goal) for _ in range(place.repeat)]
    return [
        Figure(f"{kind}, 1 worker", [rate for rate, _ in runs], "messages/s", Target(goal)),
        Figure(f"{kind}: CPU of the worker", [cpu for _, cpu in runs], "ms a message"),
    ]


async def _send_all(
    place: Place, kind: str, channel: Channel, body: Mapping[str, Any], rule: Rule, *, rate: float
) -> tuple[float, float]:
    given, count = accounts.NETWORK[kind], int(rate * _SECONDS)
    async with post_office(place, rule, fake_module=given.fake_module, body=body) as (house, post):
        # Only what an account of this kind is made of is asked of it: nothing goes out by it.
        described: Any = object.__new__(given)
        described.fake = post.fake
        credential = await post.credential(
            kind=kind, rate=rate, max_in_flight=1_000, fields=dict(described.fields), secret=described.secret,
            test_recipient=given.to,
        )  # fmt: skip
        worker = await house.start("worker")
        await house.start("scheduler")
        meter = Meter({"worker": worker.pid})
        job = await post.job(credential, _people(channel, count), batch_size=1_000, channel=channel)
        await closed(post, job, seconds=300)
        moments = sorted(one.began_ns for one in (await post.fake.tell()).arrived)
        if len(moments) != count:
            raise Wrong(f"{len(moments):,} calls for {count:,} messages")
        return (count - 1) / ((moments[-1] - moments[0]) / 1e9), meter.used()["worker"] / count * 1_000


def _people(channel: Channel, count: int) -> list[str]:
    if channel is Channel.PUSH:
        return [f"{number:064x}" for number in range(count)]
    return [f"r{number}@example.com" for number in range(count)]
