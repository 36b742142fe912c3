"""Who publishes first owns a topic, and who is refused has changed nothing."""

import asyncio

import pytest

from shared.bus.rules.events import NOTICES, NOTIFIER
from shared.bus.rules.subscriptions import EventSubscription, SubscriptionStatus
from shared.bus.topics import TopicFlow
from shared.core.documents import JOBS_TOPIC
from shared.core.errors import Conflict, Forbidden, NotFound
from shared.store import Store
from shared.time import DatabaseTime
from tests.bus.store.made_subscriptions import add, change, flush_of, no_log, version

pytestmark = pytest.mark.native

OURS, THEIRS = "token:ours", "token:theirs"


@pytest.fixture
def topics(store: Store) -> TopicFlow:
    return TopicFlow(store, DatabaseTime(store).now, no_log, most=3)


async def owner(store: Store, name: str) -> str | None:
    topic = await store.bus_topics.get(name)
    return None if topic is None else topic.owner


async def test_the_first_who_claims_a_topic_owns_it(store: Store, topics: TopicFlow) -> None:
    assert (await topics.claim("widgets", OURS)).owner == OURS
    assert (await topics.claim("widgets", OURS)).owner == OURS
    with pytest.raises(Forbidden):
        await topics.claim("widgets", THEIRS)
    assert await owner(store, "widgets") == OURS


async def test_a_topic_that_only_subscribers_know_is_claimed_by_its_first_publisher(
    store: Store, topics: TopicFlow
) -> None:
    await add(store, "k", "widgets")
    assert await owner(store, "widgets") == ""
    assert await topics.check_publisher("widgets", OURS)
    assert await owner(store, "widgets") == ""
    await topics.claim("widgets", OURS)
    with pytest.raises(Forbidden):
        await topics.check_publisher("widgets", THEIRS)


async def test_of_many_who_claim_at_once_one_wins(store: Store) -> None:
    flows = [TopicFlow(store, DatabaseTime(store).now, no_log, most=3) for _ in range(8)]
    claims = [flow.claim("widgets", f"token:{number}") for number, flow in enumerate(flows)]
    outcomes = await asyncio.gather(*claims, return_exceptions=True)
    assert sum(isinstance(outcome, Forbidden) for outcome in outcomes) == 7
    assert {topic.owner for topic in outcomes if not isinstance(topic, BaseException)} == {
        await owner(store, "widgets")
    }


async def test_a_namespace_owns_so_many_topics(store: Store, topics: TopicFlow) -> None:
    for name in ("a", "b", "c"):
        await topics.claim(name, OURS)
    await add(store, "k", "e")
    for name in ("d", "e"):
        with pytest.raises(Forbidden):
            await topics.claim(name, OURS)
    assert (await owner(store, "d"), await owner(store, "e")) == (None, "")
    assert (await topics.claim("a", OURS)).owner == OURS


@pytest.mark.parametrize("name", [NOTICES, JOBS_TOPIC, "carillon_of_tomorrow"])
async def test_nobody_else_publishes_on_topics_of_carillons_own(store: Store, topics: TopicFlow, name: str) -> None:
    with pytest.raises(Forbidden):
        await topics.claim(name, OURS)
    assert await owner(store, name) is None
    assert (await topics.claim(name, NOTIFIER)).owner == NOTIFIER
    with pytest.raises(Forbidden):
        await topics.remove(name, namespace=None, of_others=True)


async def subscription(store: Store, made: EventSubscription) -> EventSubscription:
    found = await store.bus_subscriptions.get(made.id)
    assert found is not None
    return found


async def test_a_removed_topic_leaves_every_subscription_and_begins_anew(store: Store, topics: TopicFlow) -> None:
    one, other = await add(store, "one", "gone", "stays"), await add(store, "other", "gone")
    await topics.claim("gone", OURS)
    session = store.bus_flushes.open_session()
    await store.bus_flushes.take_over({"log/0": ""}, session)
    stands = (await store.bus_flushes.read_positions(["log/0"]))["log/0"]
    await store.bus_flushes.flush(
        flush_of(await version(store), {"log/0": (stands, 5)}, counts={"gone": (5, 100)}), session
    )
    await session.close()
    assert (await topics.get("gone")).events == 5
    before = await version(store)

    await topics.remove("gone", namespace=OURS, of_others=True)
    assert (await subscription(store, one)).topics == ("stays",)
    assert (await subscription(store, other)).topics == ()
    changed = (await store.bus_subscriptions.read_since(before)).changed
    assert {found.id for found in changed} == {one.id, other.id}
    with pytest.raises(NotFound):
        await topics.get("gone")
    await topics.claim("gone", THEIRS)
    assert (await topics.get("gone")).events == 0


async def test_only_its_owner_removes_a_topic_or_who_may_remove_any(store: Store, topics: TopicFlow) -> None:
    await topics.claim("widgets", OURS)
    await add(store, "k", "unclaimed", "widgets")
    for name in ("widgets", "unclaimed"):
        with pytest.raises(Forbidden):
            await topics.remove(name, namespace=THEIRS, of_others=True)
    with pytest.raises(NotFound):
        await topics.remove("none", namespace=None, of_others=True)
    assert [found.topic.id for found in await topics.list()] == ["unclaimed", "widgets"]
    await topics.remove("unclaimed", namespace=None, of_others=True)
    await topics.remove("widgets", namespace=OURS, of_others=True)
    assert await topics.list() == []


async def test_a_topic_that_others_have_is_left_to_them(store: Store, topics: TopicFlow) -> None:
    other = await add(store, "other", "widgets", namespace=THEIRS)
    await add(store, "mine", "widgets", "ours", namespace=OURS)
    for name in ("widgets", "ours"):
        await topics.claim(name, OURS)
    before = await version(store)
    with pytest.raises(Conflict, match="1 subscription of others has"):
        await topics.remove("widgets", namespace=OURS, of_others=False)
    assert (await subscription(store, other)).topics == ("widgets",)
    assert (await owner(store, "widgets"), await version(store)) == (OURS, before)
    await topics.remove("ours", namespace=OURS, of_others=False)
    await change(store, other, state=SubscriptionStatus.REMOVED)
    await topics.remove("widgets", namespace=OURS, of_others=False)
    assert await topics.list() == []
