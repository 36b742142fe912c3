"""A signing secret for each namespace, and that workers sign by it."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from services.worker.clock.call import WorkerCallbacks
from services.worker.clock.start import JobStarts
from shared.accounts import removal as accounts
from shared.accounts.removal import Signing
from shared.clock.rules.callbacks import CallTarget, HttpCallback
from shared.clock.rules.occurrences import once
from shared.clock.rules.schedules import Definition
from shared.clock.schedules import Accepted, Wanted
from shared.clock.settlement import Settlement
from shared.runtime.settings import ApiSettings, CallbackSettings
from shared.store import Store
from shared.time import DatabaseTime
from tests.drivers.http.receiver import INTERNET, Received, calling, receiving
from tests.services.api.client import ADMIN, Client
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def with_key(house: House) -> Client:
    app = house.build(ApiSettings(first_admin=ADMIN), CallbackSettings(signing_secret=KEY))
    return Client(app, dict(house.admin.headers))


async def issued(house: House, admin: Client) -> tuple[Client, str]:
    made = (await admin.post("/tokens", {"name": "signing"})).json
    return admin.service(made["token"]), f"token:{made['id']}"


async def fired(house: House, namespace: str, callback: dict[str, Any]) -> Received:
    """What a worker sends for a schedule of this namespace, made due now."""
    async with receiving(INTERNET) as receiver, calling() as outgoing:
        definition = Definition(
            callback=HttpCallback(payload='{"grant":"everything"}', url=receiver.url, **callback),
            instants=(datetime.now(UTC).replace(microsecond=0) + timedelta(days=1),),
        )
        [made] = await house.schedules.accept([Wanted(namespace, f"k{receiver.url[-5:]}", definition)])
        assert isinstance(made, Accepted)
        await call(house.store, made, outgoing)
        (got,) = receiver.received
        return got


async def call(store: Store, made: Accepted, outgoing: Any) -> None:
    schedule, time = made.schedule, DatabaseTime(store)
    due = once(schedule.owner, schedule.generation, schedule.definition.instants[0], accepted_at=schedule.accepted_at)
    token, leased_until = "t" * 24, await time.now() + timedelta(minutes=1)
    await store.occurrences._occurrences.update_one(
        {"_id": due.id}, {"$set": {"token": token, "visible_at": leased_until}}
    )
    caller = WorkerCallbacks(
        store, time, outgoing, cast(JobStarts, None), Settlement(store, tick=timedelta(seconds=1)),
        call_timeout=timedelta(seconds=30),
        signing=Signing(store, time.now, deployment_key=KEY),
    )  # fmt: skip
    await caller.run(CallTarget(due.id, token))


def verifies(request: Received, secret: str) -> bool:
    headers = {name: request.header(name)[0] for name in ("webhook-id", "webhook-timestamp", "webhook-signature")}
    try:
        Webhook(secret).verify(request.body, headers)
    except WebhookVerificationError:
        return False
    return True


async def test_a_receiver_tells_callers_apart_by_their_own_secrets(house: House) -> None:
    admin = with_key(house)
    alice, alices = await issued(house, admin)
    bob, bobs = await issued(house, admin)
    reply = await alice.post("/signing-secrets")
    assert (reply.status, reply.json["namespace"], reply.json["version"]) == (201, alices, 1)
    alices_secret, bobs_secret = reply.json["secret"], (await bob.post("/signing-secrets")).json["secret"]
    by_alice, by_bob = await fired(house, alices, {}), await fired(house, bobs, {})
    assert verifies(by_alice, alices_secret)
    assert not verifies(by_bob, alices_secret)
    assert verifies(by_bob, bobs_secret)
    # Receivers that know the deployment's have a day to change over.
    assert verifies(by_alice, KEY)
    assert len(by_alice.header("webhook-signature")[0].split(" ")) == 2


async def test_an_old_secret_signs_beside_the_new_one(house: House) -> None:
    admin = with_key(house)
    service, namespace = await issued(house, admin)
    old, new = [(await service.post("/signing-secrets")).json for _ in range(2)]
    assert (old["version"], new["version"]) == (1, 2)
    request = await fired(house, namespace, {})
    assert verifies(request, old["secret"])
    assert verifies(request, new["secret"])


async def test_without_one_of_its_own_a_namespace_is_signed_by_the_deployments(house: House) -> None:
    _, namespace = await issued(house, with_key(house))
    request = await fired(house, namespace, {})
    assert verifies(request, KEY)
    assert " " not in request.header("webhook-signature")[0]


async def test_a_callbacks_own_secret_signs_alone(house: House) -> None:
    own = "whsec_" + "QUJD" * 8
    service, namespace = await issued(house, with_key(house))
    await service.post("/signing-secrets")
    request = await fired(house, namespace, {"secret": own})
    assert verifies(request, own)
    assert not verifies(request, KEY)


async def test_an_admin_asks_for_any_namespace_and_others_for_their_own(house: House) -> None:
    admin = with_key(house)
    service, namespace = await issued(house, admin)
    _, other = await issued(house, admin)
    reply = await admin.post(f"/signing-secrets?namespace={namespace}")
    assert (reply.status, reply.json["namespace"]) == (201, namespace)
    refused = await service.post(f"/signing-secrets?namespace={other}")
    assert (refused.status, refused.json["field"]) == (403, "namespace")


async def test_secrets_are_not_stored_and_not_shown_twice(house: House) -> None:
    service, namespace = await issued(house, with_key(house))
    secret = (await service.post("/signing-secrets")).json["secret"]
    stored = await house.store.signing_secrets.get(namespace)
    assert stored is not None
    assert secret.removeprefix("whsec_") not in repr(stored)
    assert (await service.get("/signing-secrets")).status in {404, 405}


async def test_of_many_at_once_each_gets_a_version_of_its_own(house: House) -> None:
    service, _ = await issued(house, with_key(house))
    replies = await asyncio.gather(*(service.post("/signing-secrets") for _ in range(7)))
    assert sorted(reply.json["version"] for reply in replies if reply.status == 201) == [1, 2, 3, 4, 5]
    assert [reply.status for reply in replies].count(409) == 2


async def test_without_a_deployment_key_the_setting_is_named(house: House) -> None:
    reply = await house.admin.post("/signing-secrets")
    assert (reply.status, reply.json["field"]) == (409, "callbacks.signing_secret")


async def test_a_worker_asks_for_a_namespaces_secrets_once_in_some_seconds(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "REMEMBERED_SECONDS", 1_000.0)
    own = Signing(house.store, house.schedules.now, deployment_key=KEY)
    now = await house.schedules.now()
    assert await own.get_secrets("token:quiet", now) == (KEY,)
    await own.issue("token:quiet")
    assert await own.get_secrets("token:quiet", now) == (KEY,)
    fresh = Signing(house.store, house.schedules.now, deployment_key=KEY)
    assert len(await fresh.get_secrets("token:quiet", now)) == 2
    assert await Signing(house.store, house.schedules.now, deployment_key="").get_secrets("token:quiet", now) == ()
