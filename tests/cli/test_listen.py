"""`carillon listen`: copies of deliveries for a local program, of which the subscription notices nothing."""

import json
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import click
import msgspec
import pytest
import pytest_asyncio

from services.cli.listening import check_target
from services.embedded.processes import free_port
from shared.bus.rules.deliveries import Cursor
from shared.bus.rules.subscriptions import EventSubscription
from shared.drivers.http.signing import verify_webhook
from shared.runtime.serving import HttpServer
from tests.cli.conftest import Program, Running
from tests.receivers import Arrival
from tests.services.api.bus.native.conftest import Delivered, delivered
from tests.services.api.bus.native.test_logged_events import Logged, on_log
from tests.services.api.conftest import SETTINGS, House
from tests.services.worker.bus.delivering import NAMESPACE

__all__ = ["delivered"]

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

SECRET = "whsec_" + "A" * 32
OF_NAMESPACE = ("--namespace", NAMESPACE)


@pytest_asyncio.fixture(loop_scope="module")
async def logged(delivered: Delivered, house: House) -> Logged:
    """The bus of this house, by its own log."""
    made = await on_log(delivered, house.servers.stream, SETTINGS.bus.log_topic)
    return Logged(delivered, made.stream, SETTINGS.bus, made.topic)


async def subscribe(logged: Logged, key: str = "") -> EventSubscription:
    """A subscription that gets each event by itself."""
    wish = {"topics": [logged.topic], "max_events": 1, "in_flight": 1, "ordered": True}
    return await logged.delivered.bus.subscribe(key or f"k-{secrets.token_hex(4)}", **wish)


@asynccontextmanager
async def listening(cli: Program, key: str, to: str, *more: str, **environment: str) -> AsyncIterator[Running]:
    async with cli.running("listen", key, "--to", to, *OF_NAMESPACE, *more, **environment) as running:
        await running.told(f"Listening to {key}")
        yield running


async def test_a_local_program_gets_what_the_receiver_gets_and_nothing_changes(cli: Program, logged: Logged) -> None:
    bus, subscription = logged.delivered.bus, await subscribe(logged)
    receiver, key = bus.receiver, subscription.key
    (cli.home / "secret").write_text(f"{SECRET}\n")
    await receiver.answer("/local", 200, 500)
    async with logged.fanning_out():
        await logged.publish(0)
        await bus.sent(subscription, 1)
        async with listening(cli, key, f"{receiver.url}/local", "--secret-file", "secret", "--json") as running:
            await logged.publish(2, 4)
            lines: list[dict[str, Any]] = [json.loads(await running.line()) for _ in range(2)]
            running.process.send_signal(signal.SIGINT)
            assert await running.told("Interrupted.")
            assert (await running.ended()).code == 130
    after: Cursor = await bus.sent(subscription, 3)
    assert (after.sent, after.dead, after.health.failures) == (3, 0, 0)

    _, *sent = receiver.arrivals(f"/{key}")
    copies: list[Arrival] = receiver.arrivals("/local")
    assert [copy.body for copy in copies] == [call.body for call in sent]
    assert [copy.id for copy in copies] == [call.id for call in sent] == [line["id"] for line in lines]
    assert [(line["sequence"], line["events"], line["status"]) for line in lines] == [(2, 1, 500), (3, 1, 200)]
    for copy in copies:
        assert copy.headers["carillon-copy"] == "true"
        verify_webhook(copy.headers, copy.body.encode(), SECRET)


@pytest.mark.slow
async def test_numbers_go_on_and_are_shown_as_they_were_published(cli: Program, logged: Logged) -> None:
    bus, subscription = logged.delivered.bus, await subscribe(logged)
    receiver, key = bus.receiver, subscription.key
    event = b'{"id":"e","data":{"n":1.10,"m":1E400}}'
    await receiver.answer(f"/{key}", 503, retry_after="60")
    await receiver.answer("/exact", 200)
    async with listening(cli, key, f"{receiver.url}/exact", "--json") as running:
        await bus.publish(subscription, msgspec.Raw(event))
        assert json.loads(await running.line())["status"] == 200
    (copy,) = receiver.arrivals("/exact")
    assert '{"n":1.10,"m":1E400}' in copy.body
    (delivery,) = await bus.deliveries(subscription)
    for more in ([], ["--json"]):
        shown = await cli.done("deliveries", "show", delivery.id, "--events", *OF_NAMESPACE, *more)
        assert '{"n":1.10,"m":1E400}' in shown.out


@pytest.mark.slow
async def test_it_goes_on_once_the_api_is_back_also_where_the_subscription_was_made_anew(
    cli: Program, logged: Logged, house: House
) -> None:
    bus, subscription, port = logged.delivered.bus, await subscribe(logged), free_port()

    def serve() -> HttpServer:
        return HttpServer("api", house.build(), host="127.0.0.1", port=port, proxy_headers=False)

    server = serve()
    await server.start()
    cli.keep(f"http://127.0.0.1:{port}")
    nobody = f"http://127.0.0.1:{free_port()}"
    async with logged.fanning_out():
        await logged.publish(0)
        await bus.sent(subscription, 1)
        async with listening(cli, subscription.key, nobody, "--since", "0") as running:
            assert "  1 event  " in await running.line()
            await server.stop()
            away = await running.told("The API is away: ")
            assert away.endswith("It is asked again until it answers.\n")
            await bus.subscribing.unsubscribe(NAMESPACE, subscription.key)
            anew = await subscribe(logged, subscription.key)
            await logged.publish(2)
            await bus.sent(anew, 1)
            server = serve()
            await server.start()
            assert await running.told("The API answers again.")
            assert await running.told("The subscription was removed and made anew")
            line = await running.line()
            assert " ms\n" in line
            assert "refused" in line or "failed" in line, line
    await server.stop()


async def test_what_cannot_be_listened_to_is_said_at_once(cli: Program, logged: Logged, url: str) -> None:
    for target in ("localhost:3000", "ftp://localhost/", "http://", "http://localhost:99999/", "http://a b/"):
        with pytest.raises(click.UsageError, match="--to must be a URL such as http://"):
            check_target(target)
    subscription, to = await subscribe(logged), ("--to", "http://127.0.0.1:1/")
    assert (await cli.run("listen", "nobodys", *to, *OF_NAMESPACE)).code == 4
    viewer = logged.delivered.viewer.headers["authorization"].removeprefix("Bearer ")
    of_viewer = {"CARILLON_TARGET": url, "CARILLON_TOKEN": viewer}
    refused = await cli.run("listen", subscription.key, *to, *OF_NAMESPACE, **of_viewer)
    assert refused.code == 6
    assert "takes an operator" in refused.err
