"""`GET /bus/subscriptions/{key}/health`: what is told of a receiver that fails, and of one that has taken all."""

import pytest

from tests.services.api.bus.conftest import is_refused
from tests.services.api.bus.native.conftest import Delivered

pytestmark = [pytest.mark.bus_routes, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


async def test_a_receiver_that_fails_and_one_that_takes(delivered: Delivered) -> None:
    bus, path = delivered.bus, delivered.about("subscriptions/h/health")
    subscription = await bus.subscribe("h", max_events=2)
    fresh = (await delivered.viewer.get(path)).json
    assert (fresh["key"], fresh["state"], fresh["points"], fresh["failures"], fresh["queued"]) == (
        *("h", "active"),
        *(100, 0, 0),
    )
    assert {fresh[name] for name in ("oldest_at", "last_attempt_at", "next_probe_at", "failing_since")} == {None}

    await bus.receiver.answer("/h", 503, retry_after="60")
    await bus.publish(subscription, 1, 2)
    await bus.arrived(1)
    await bus.rested(subscription)
    failing = (await delivered.operator.get(path)).json
    assert (failing["points"], failing["failures"], failing["queued"], failing["in_flight"]) == (98, 1, 2, 1)
    assert failing["failing_since"] == failing["last_attempt_at"] < failing["next_probe_at"]
    assert (fresh["accepted_percent"], failing["accepted_percent"]) == (100, 0)
    assert [(each["accepted_calls"], each["last_calls"] > 0) for each in (fresh, failing)] == [(0, False), (0, True)]
    (listed,) = [
        each for each in (await delivered.viewer.get(delivered.about("subscriptions"))).json if each["key"] == "h"
    ]
    shown = (await delivered.viewer.get(delivered.about("subscriptions/h"))).json
    assert listed["failing_since"] == shown["failing_since"] == failing["failing_since"]
    assert failing["oldest_at"] <= failing["last_attempt_at"]

    await bus.subscribing.pause(subscription.namespace, "h", reason="a look")
    paused = (await delivered.viewer.get(path)).json
    assert (paused["state"], paused["reason"], paused["next_probe_at"]) == ("paused", "a look", None)
    assert is_refused(await delivered.stranger.get("/bus/subscriptions/h/health"), 404)
    assert is_refused(await delivered.stranger.get(path), 403)
