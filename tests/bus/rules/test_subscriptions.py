"""Subscriptions: how they and what waits for them are named, and which state follows which."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from shared.bus.rules.subscriptions import (
    COLLECTING,
    SUBSCRIPTION_TRANSITIONS,
    EventSubscription,
    SubscriptionStatus,
    queue_of,
    share_topics,
    subscription_id,
    subscription_of,
)
from shared.core.documents import sources

NOW = datetime(2026, 11, 24, tzinfo=UTC)
# Neither holds a NUL: namespaces and keys are checked where they come in.
WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)


@given(WORDS, WORDS, WORDS, WORDS)
def test_an_id_is_that_of_one_namespace_and_key(namespace: str, key: str, other: str, other_key: str) -> None:
    same = (namespace, key) == (other, other_key)
    assert (subscription_id(namespace, key) == subscription_id(other, other_key)) is same
    assert len(subscription_id(namespace, key)) == 32


def test_ids_never_change() -> None:
    """They stand in the database."""
    assert subscription_id("token:1", "routemaster") == "b7f1cf9bee5d24b58d24dbf56d60c0a8"


@given(st.text("0123456789abcdef", min_size=1, max_size=32))
def test_a_queue_names_its_subscription_and_its_generation(generation: str) -> None:
    id = subscription_id("token:1", "k")
    queue = queue_of(id, generation)
    assert queue == f"{id}.{generation}"
    assert subscription_of(queue) == id
    made = EventSubscription(
        id=id,
        namespace="token:1",
        key="k",
        generation=generation,
        callback="https://a/",
        created_at=NOW,
        updated_at=NOW,
    )
    assert made.queue == queue


def test_states_that_collect_and_those_that_can_be_left() -> None:
    state = SubscriptionStatus
    assert {state.ACTIVE, state.PAUSED} == COLLECTING
    assert set(SUBSCRIPTION_TRANSITIONS) == set(state)
    assert set(sources(SUBSCRIPTION_TRANSITIONS, state.ACTIVE)) == {state.PAUSED, state.SUSPENDED, state.REMOVED}
    assert set(sources(SUBSCRIPTION_TRANSITIONS, state.SUSPENDED)) == {state.ACTIVE}


def test_an_ordered_one_has_one_delivery_open() -> None:
    plain = EventSubscription(
        id="i", namespace="n", key="k", generation="g", callback="https://a/", created_at=NOW, updated_at=NOW
    )
    assert (plain.most_open, plain.timeout, plain.collects) == (100, timedelta(milliseconds=500), True)
    ordered = EventSubscription(
        id="i", namespace="n", key="k", generation="g", callback="https://a/", ordered=True,
        state=SubscriptionStatus.SUSPENDED, created_at=NOW, updated_at=NOW,
    )  # fmt: skip
    assert (ordered.most_open, ordered.collects) == (1, False)


def test_names_of_topics_that_subscriptions_have_in_common_are_held_once() -> None:
    names: dict[str, str] = {}
    wide = [
        EventSubscription(
            id=str(number), namespace="token:n", key="k", generation="g", callback="https://a.example",
            topics=(f"shared.{min(number, 0)}", f"own.{number}"), created_at=NOW, updated_at=NOW,
        )
        for number in range(2)
    ]  # fmt: skip
    assert wide[0].topics[0] is not wide[1].topics[0]
    one, other = [share_topics(each, names) for each in wide]
    assert [one, other] == wide
    assert one.topics[0] is other.topics[0]
