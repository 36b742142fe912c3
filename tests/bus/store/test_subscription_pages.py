"""Pages of subscriptions are bounded by their bytes too, and those who need little of each read little."""

import pytest

from shared.bus.rules.filters import Comparison, DataCondition, EventFilter
from shared.bus.rules.subscriptions import PUBLISHED_KEY, FormerChoice
from shared.bus.store_subscriptions import _codec
from shared.core.documents import LogEnds
from shared.drivers.mongo.documents import PAGE_BYTES
from shared.store import Store
from tests.bus.store.made_subscriptions import made

pytestmark = pytest.mark.native

LONG = EventFilter(data=tuple(DataCondition("/x", Comparison.EQ, '"' + "x" * 9_998 + '"') for _ in range(10)))
HEADERS = {f"x-{number}": "y" * 1_000 for number in range(100)}


async def test_a_page_ends_where_it_has_many_bytes_and_the_next_goes_on(store: Store) -> None:
    wide = [made(f"k{number:03}", "a", filter=LONG, headers=HEADERS) for number in range(60)]
    documents = [_codec.document(each) for each in wide]
    await store._database["bus_subscriptions"].insert_many(documents)
    keys, after, sizes = list[str](), "", list[int]()
    while page := await store.bus_subscriptions.page_of("token:n", after=after, limit=1_000):
        keys, after = [*keys, *(each.key for each in page)], page[-1].key
        sizes.append(len(page) * 200_000)
        if not page.more:
            break
    assert keys == [each.key for each in wide]
    assert len(sizes) == 2
    assert max(sizes) <= PAGE_BYTES


async def test_those_with_former_choices_are_read_page_by_page(store: Store) -> None:
    former = FormerChoice(topics=("a",), filter=None, ends=LogEnds(id="ends", log="log", offsets=()))
    some = [made(f"k{number}", "a", former=(former,)) for number in range(5)]
    await store._database["bus_subscriptions"].insert_many([_codec.document(each) for each in some])
    found, after = list[str](), ""
    while page := await store.bus_subscriptions.find_with_former(2, after=after):
        assert len(page) <= 2
        found, after = [*found, *(each.id for each in page)], page[-1].id
    assert found == sorted(each.id for each in some)


async def test_lists_of_all_namespaces_read_nothing_long(store: Store) -> None:
    wide = [made(key, "a", filter=LONG, headers=HEADERS) for key in ("one", PUBLISHED_KEY)]
    await store._database["bus_subscriptions"].insert_many([_codec.document(each) for each in wide])
    listed = await store.bus_subscriptions.page(limit=10)
    assert {each.key for each in listed} == {"one", PUBLISHED_KEY}
    assert {(each.topics, each.filter, len(each.headers)) for each in listed} == {((), EventFilter(), 0)}
    (published,) = await store.bus_subscriptions.page_published(limit=10)
    assert (published.key, published.topics, published.filter, published.headers) == (
        PUBLISHED_KEY, ("a",), EventFilter(), {},
    )  # fmt: skip
