"""Mails about jobs, through a real SMTP conversation: one for each thing that happened, repeated only over a kill."""

from collections import Counter
from collections.abc import AsyncIterator
from email import message_from_bytes
from email.message import Message
from email.utils import getaddresses
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from services.embedded.processes import free_port
from shared.core.instants import LATEST
from tests.e2e.house import House
from tests.e2e.test_over_http import Customer, an_app
from tests.waiting import SECONDS, until

pytestmark = [pytest.mark.e2e, pytest.mark.native]


class Sink:
    """A mail server that keeps what it takes."""

    def __init__(self) -> None:
        self.taken: list[Message] = []

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 - its name
        assert isinstance(envelope.content, bytes)
        self.taken.append(message_from_bytes(envelope.content))
        return "250 taken"

    @property
    def subjects(self) -> Counter[str]:
        return Counter(message["Subject"] for message in self.taken)

    @property
    def ids(self) -> Counter[str]:
        return Counter(message["Message-ID"] for message in self.taken)


@pytest.fixture
async def sink(house: House) -> AsyncIterator[Sink]:
    """The house's processes that start from here on send their mails to it."""
    sink, port = Sink(), free_port()
    controller = Controller(sink, hostname="127.0.0.1", port=port, ready_timeout=SECONDS)
    controller.start()
    house.environment |= {
        "CARILLON_MAIL_URL": f"smtp://127.0.0.1:{port}?tls=never",
        "CARILLON_MAIL_ADDRESSEES": "team@example.com",
    }
    yield sink
    controller.stop()


async def a_job(house: House, **fields: Any) -> Any:
    port = free_port()
    await house.start("api", CARILLON_API_PORT=str(port), CARILLON_API_FIRST_ADMIN="admin@example.com")
    customer = Customer(port)
    app_id = await an_app(house, customer)
    status, job = await customer.call("POST", f"/apps/{app_id}/jobs?template=welcome", {"service": "apns", **fields})
    assert status == 201, job
    return customer, f"/apps/{app_id}/jobs/{job['id']}"


@pytest.mark.parametrize("fault", ["", "mail.after_send=kill"], ids=["", "killed"])
async def test_everybody_hears_of_a_job_once_or_with_the_same_id(house: House, sink: Sink, fault: str) -> None:
    await house.devices(2_000)
    customer, path = await a_job(house, startsAt=house.servers.clock.now_ns() + 3_600 * 10**9)
    first = await house.start("worker", fault=fault)
    await house.start("scheduler")
    if fault:
        await first.gone()
        # Rather than wait until the dead one's lease is over.
        await house.servers.store.jobs._jobs.update_many({}, {"$unset": {"mail_lease": ""}})
        await house.start("worker")
    for move in ("pause", "resume", "stop"):
        assert (await customer.call("PUT", f"{path}/{move}"))[0] == 200
    expected = {"New push job scheduled", "Push job entered paused state", "Push job stopped"}
    await until(lambda: set(sink.subjects) == expected, "three mails")
    await until(lambda: nothing_is_due(house), "nothing to be due")
    people = [("", "admin@example.com"), ("", "team@example.com")]
    assert all(getaddresses([message["To"]]) == people for message in sink.taken)
    repeated = [each for each, times in sink.ids.items() if times > 1]
    assert len(repeated) == (1 if fault else 0)
    assert max(sink.ids.values()) <= 2
    assert len(sink.ids) == 3
    stopped = next(message for message in sink.taken if message["Subject"] == "Push job stopped")
    assert "admin@example.com" in str(stopped.get_payload(decode=True))


@pytest.mark.proof
async def test_a_completed_job_is_told_with_its_numbers(house: House, sink: Sink) -> None:
    await house.devices(2_000)
    for service in ("scheduler", "worker"):
        await house.start(service)
    await a_job(house)
    await until(lambda: "Push job completed" in sink.subjects, "the mail")
    await until(lambda: nothing_is_due(house), "nothing to be due")
    assert sink.subjects == {"New push job created": 1, "Push job completed": 1}
    told = next(message for message in sink.taken if message["Subject"] == "Push job completed")
    content = told.get_payload(decode=True)
    assert isinstance(content, bytes)
    assert "2,000" in content.decode() or "2000" in content.decode()


async def nothing_is_due(house: House) -> bool:
    return [job_id async for job_id in house.servers.store.mails.find_waiting(LATEST)] == []
