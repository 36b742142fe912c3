"""A worker is ready once its servers are fit, and a process looks at what each of its components says."""

import pytest

from services.wiring import process
from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from services.worker.consumer import Workers
from shared.core.errors import Unavailable
from shared.drivers.rabbitmq.memory import MemoryBroker
from shared.runtime.configuration import load
from shared.runtime.health import ProcessHealth
from tests.waiting import until


async def test_it_is_ready_once_its_servers_are_fit() -> None:
    away = [Unavailable("Kafka: topic carillon.ledger has 0 partitions of 64: run `carillon init`")]

    async def verify() -> None:
        if away:
            raise away[0]

    workers = Workers(MemoryBroker(), [], name="test", verify=verify)
    await workers.start()
    try:
        with pytest.raises(Unavailable, match="waits until RabbitMQ and Kafka"):
            await workers.check()
        away.clear()
        await until(lambda: workers._is_verified, "the servers to be found fit")
        await workers.check()
    finally:
        await workers.stop()


async def test_the_process_looks_at_it(tmp_path: object) -> None:
    settings = load({"CARILLON_BROKER_URL": "memory://", "CARILLON_STREAM_URL": f"local://{tmp_path}/stream"})
    servers, health = Servers(settings, service="worker"), ProcessHealth()
    process.add_checks(process.build(Rooms(servers), ["worker"], health), health)
    assert set(health._checks) == {"mongodb", "broker", "push database", "stream", "schema", "worker"}
    assert set(health._checks) - health._needed == {"push database", "stream"}
    await servers.close()
