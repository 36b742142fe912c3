"""Credentials through both clients, against the real API."""

import pytest
from msgspec.structs import asdict

from carillon import (
    AsyncCarillon,
    Conflict,
    Credential,
    CredentialChange,
    CredentialStatus,
    Invalid,
    NotFound,
    SendRetry,
)
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

SANDBOX = Credential(name="play", kind="sandbox", test_recipient="ana@example.com")


async def test_the_life_of_a_credential(client: AsyncCarillon, house: House) -> None:
    app_id, all_of = await house.app(), client.credentials
    made = await all_of.create(app_id, SANDBOX)
    assert (made.name, made.rate, made.max_in_flight, made.status) == ("play", 50, 25, CredentialStatus.ACTIVE)
    assert made.retry == SendRetry()
    detail = await all_of.get(app_id, made.id)
    assert {name: getattr(detail, name) for name in made.__struct_fields__} == asdict(made)
    assert (detail.queue.jobs, detail.hold_until) == (0, None)
    assert [each async for each in all_of.list(app_id)] == [made]
    change = CredentialChange(rate=7, order="shares", retry=SendRetry(attempts=1))
    changed = await all_of.update(app_id, made.id, change)
    assert (changed.rate, changed.order, changed.retry.attempts, changed.test_recipient) == (
        7, "shares", 1, "ana@example.com",
    )  # fmt: skip
    await all_of.test(app_id, made.id)
    suspended = await all_of.suspend(app_id, made.id, reason="unpaid")
    assert (suspended.status, suspended.why) == (CredentialStatus.SUSPENDED, "unpaid")
    with pytest.raises(Conflict):
        await all_of.suspend(app_id, made.id)
    assert (await all_of.activate(app_id, made.id)).status is CredentialStatus.ACTIVE
    assert (await all_of.replace_secret(app_id, made.id, {})).fingerprint == ""
    await all_of.delete(app_id, made.id)
    with pytest.raises(NotFound):
        await all_of.get(app_id, made.id)
    assert (await all_of.reencrypt()).remaining == 0


async def test_what_the_provider_says_comes_back(client: AsyncCarillon, house: House) -> None:
    app_id = await house.app()
    bounces = Credential(name="no", kind="sandbox", test_recipient="a+bounce@example.com")
    lost = Credential(name="no", kind="sandbox", test_recipient="a+lost@example.com")
    with pytest.raises(Invalid, match="bounces") as refused:
        await client.credentials.create(app_id, bounces)
    assert refused.value.field == "testRecipient"
    with pytest.raises(Invalid, match="no answer"):
        await client.credentials.create(app_id, lost)
    assert [each async for each in client.credentials.list(app_id)] == []


async def test_no_secret_is_shown() -> None:
    credential = Credential(name="sms", kind="twilio", secret={"token": "hush"}, test_recipient="hush")
    assert "hush" not in repr(credential)
