"""Suppressions through both clients, against the real API."""

import pytest

from carillon import AsyncCarillon, Invalid, NotFound, Suppression
from carillon.messages import SUPPRESSIONS_AT_ONCE
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

ANA = Suppression(channel="mail", address="ana@example.com")


async def test_somebody_is_added_found_and_deleted(client: AsyncCarillon, house: House) -> None:
    app_id, all_of = await house.app(), client.suppressions
    made = await all_of.add(app_id, ANA)
    assert (made.created, made.address, made.cause, made.list, made.unsubscribed_at) == (
        True, "ana@example.com", "hand", "", None,
    )  # fmt: skip
    assert not (await all_of.add(app_id, ANA)).created
    await all_of.add(app_id, Suppression(channel="sms", address="91234567", default_region="SG", list="news"))
    assert [each.address async for each in all_of.list(app_id, address="+6591234567")] == ["+6591234567"]
    assert len([each async for each in all_of.list(app_id, page_size=1)]) == 2
    await all_of.delete(app_id, made.id)
    assert [each.channel async for each in all_of.list(app_id)] == ["sms"]
    with pytest.raises(NotFound):
        await all_of.delete(app_id, made.id)
    with pytest.raises(Invalid) as refused:
        await all_of.add(app_id, Suppression(channel="mail", address="ana"))
    assert refused.value.field == "address"


async def test_many_are_added_in_chunks_with_a_result_each(client: AsyncCarillon, house: House) -> None:
    app_id = await house.app()
    bad = SUPPRESSIONS_AT_ONCE + 3
    many = (
        Suppression(channel="mail", address="nobody" if number == bad else f"u{number}@example.com")
        for number in range(SUPPRESSIONS_AT_ONCE + 10)
    )
    results = [each async for each in client.suppressions.add_many(app_id, many)]
    assert [each.index for each in results] == [*range(SUPPRESSIONS_AT_ONCE + 10)]
    assert [each.index for each in results if not each.created] == [bad]
    error = results[bad].error
    assert error is not None and error.field == "address"
    assert [each async for each in client.suppressions.add_many(app_id, [])] == []


async def test_no_address_is_shown() -> None:
    assert "ana" not in repr(ANA)
