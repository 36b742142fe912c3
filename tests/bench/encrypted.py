"""A job by one worker process over TLS with a login at each server, in turns with one in the clear."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.bench.audience import fill
from tests.bench.place import Place
from tests.bench.report import Figure, Measured, Target
from tests.bench.send import SendRun, send
from tests.bench.topics import Topic
from tests.e2e.house import House, house_on
from tests.secure.place import open_secure

_LEAST_SHARE = 0.7


async def measure(place: Place) -> list[Measured]:
    """The rate over TLS, as a share of that in the clear."""
    plain: list[SendRun] = []
    encrypted: list[SendRun] = []
    with open_secure(place.servers) as secure, tempfile.TemporaryDirectory() as folder:
        settings = {"CARILLON_API_PORT": "0", "CARILLON_HEALTH_PORT": "0", "CARILLON_LOGS_FORMAT": "json"}
        behind = house_on({**settings, **secure.admin_urls()}, Path(folder), secure.push_database, forks=False)
        async with place.house() as open_house, behind as closed_house:
            topics = [await _prepare(place, house) for house in (open_house, closed_house)]
            for _ in range(place.repeat):
                plain.append(await send(place, open_house, topics[0], "none"))
                encrypted.append(await send(place, closed_house, topics[1], "none", **secure.urls()))
    return [Measured("a job over TLS", _figures(plain, encrypted), [_note(place)])]


async def _prepare(place: Place, house: House) -> Topic:
    await fill(house, place.devices)
    topic = Topic(place.servers.kafka_servers, house.topic)
    await topic.create()
    return topic


def _figures(plain: Sequence[SendRun], encrypted: Sequence[SendRun]) -> list[Figure]:
    shares = [its.rate / mine.rate for mine, its in zip(plain, encrypted, strict=True)]
    return [
        Figure("rate over TLS / in the clear", shares, target=Target(_LEAST_SHARE)),
        *(
            figure
            for way, runs in (("over TLS", encrypted), ("in the clear", plain))
            for figure in (
                Figure(f"rate {way}", [run.rate for run in runs], "records/s"),
                Figure(f"worker's CPU {way}", [run.cpu_seconds["worker"] for run in runs], "s"),
            )
        ),
    ]


def _note(place: Place) -> str:
    return (
        f"{place.devices:,} records a job, one worker process, in turns. Over TLS each server asks for a password, "
        "Kafka by SCRAM-SHA-512. Checked after each run: every device has exactly one committed record."
    )
