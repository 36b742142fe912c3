"""Names of topics, and who may publish on one."""

from datetime import UTC, datetime

import pytest

from shared.bus.rules.events import NOTICES, Topic, check_published_name, check_topic_name
from shared.core.errors import Invalid

NOW = datetime(2026, 11, 24, tzinfo=UTC)


@pytest.mark.parametrize("name", ["a", "widgets", "a_b", "_", "a" * 64, NOTICES])
def test_names_of_routemaster_are_names_of_ours(name: str) -> None:
    check_published_name(name, field="topic")
    check_topic_name(name, field="topic")


@pytest.mark.parametrize("name", ["a1", "a.b", "a-b", "0", "...", "-"])
def test_our_own_names_have_more_characters(name: str) -> None:
    check_topic_name(name, field="topic")
    with pytest.raises(Invalid) as refused:
        check_published_name(name, field="topic")
    assert refused.value.field == "topic"


@pytest.mark.parametrize("name", ["", "a" * 65, "A", "a b", "a/b", "ä", "a\n", "\na", "a\0", "$a", ".", ".."])
def test_other_names_are_refused_whole(name: str) -> None:
    for check in (check_published_name, check_topic_name):
        with pytest.raises(Invalid) as refused:
            check(name, field="name")
        assert refused.value.field == "name"


def test_who_owns_a_topic_publishes_on_it_and_anybody_on_one_that_nobody_owns() -> None:
    free, taken = (Topic(id="t", owner=owner, created_at=NOW) for owner in ("", "token:1"))
    assert free.may_publish("token:1")
    assert free.may_publish("token:2")
    assert taken.may_publish("token:1")
    assert not taken.may_publish("token:2")
