"""What a page costs: how many routes it asks, how many commands reach the database, and what a refresh sends."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from services.api.http.pages.routes import PageRoute
from services.api.http.pages.visits import INNER, SHARED_READS, shared_reads
from services.wiring.rooms import Rooms
from tests.bench.explained import explain
from tests.commands import Commands
from tests.indexes import keys_of, plans_index, read_queries, serves, update_filters
from tests.services.api.client import ADMIN, Client
from tests.services.api.conftest import House
from tests.services.api.http.pages.addresses import InnerReads, address_of, make_some, page_routes

pytestmark = [pytest.mark.later("a thousand of each thing on a page"), pytest.mark.asyncio(loop_scope="module")]

COUNT, MANY = 7, 21
"""One more than a page asks for one by one: of accounts and of running jobs, and of subscriptions and namespaces."""

MOST = {
    "/apps": (1, 2),
    "/apps/new": (0, 1),
    "/apps/{app_id:str}": (3, 20),
    "/access": (4, 4),
    "/access/users/{user_id:str}": (2, 3),
    "/bus": (24, 40),
    "/bus/subscriptions/{key:str}": (4, 13),
    "/bus/new-subscription": (0, 1),
    "/bus/subscriptions/{key:str}/edit": (1, 2),
    "/bus/subscriptions/{key:str}/deliveries": (1, 3),
    "/bus/deliveries/{delivery_id:str}": (2, 8),
    "/bus/subscriptions/{key:str}/replays": (2, 4),
    "/bus/dead-letters": (1, 2),
    "/bus/dead-letters/{letter_id:str}": (1, 2),
    "/bus/topics": (2, 8),
    "/bus/topics/{topic:str}": (2, 4),
    "/schedules": (4, 32),
    "/schedules/{key:str}": (3, 8),
    "/new-schedule": (0, 1),
    "/schedules/{key:str}/edit": (1, 4),
    "/dead-letters": (4, 12),
    "/dead-letters/{letter_id:str}": (3, 4),
    "/": (7, 30),
    "/find": (5, 8),
    "/bulk-actions": (2, 3),
    "/bulk-actions/new": (0, 1),
    "/bulk-actions/{action_id:str}": (2, 3),
    "/processes": (2, 2),
    "/audit": (1, 2),
    "/settings": (2, 2),
    "/jobs/new": (3, 10),
    "/jobs": (7, 33),
    "/jobs/{app_id:str}/{job_id:str}": (2, 8),
    "/groups/{app_id:str}/{group_id:str}": (2, 12),
    "/templates": (2, 8),
    "/templates/{app_id:str}/named": (2, 8),
    "/templates/{app_id:str}/new": (2, 3),
    "/templates/{app_id:str}/edit/{template_id:str}": (4, 11),
    "/messages": (13, 53),
    "/messages/{app_id:str}/credentials/{credential_id:str}": (4, 17),
    "/messages/{app_id:str}/credentials/new": (1, 2),
    "/messages/{app_id:str}/credentials/{credential_id:str}/change": (2, 9),
    "/messages/{app_id:str}/credentials/{credential_id:str}/secret": (2, 9),
    "/messages/jobs/{app_id:str}/{job_id:str}": (2, 9),
    "/messages/{app_id:str}/messages/{message_id:str}": (3, 11),
    "/messages/{app_id:str}/recipients": (3, 4),
    "/messages/{app_id:str}/send": (3, 10),
}
"""The most reads of routes and the most commands of each page. What all share for a second may be read just then."""

REFRESHED = {"/bus": 2, "/schedules": 4, "/dead-letters": 6}
"""The most commands of a refresh, where it asks for less than the whole page does."""

SORTED_OR_COUNTED = {
    ("bus_deliveries", "queue", "status"): "what is open, counted for all viewers together",
    ("bus_subscriptions", "key", "namespace", "state"): "a namespace's, of which few are being removed",
    ("jobs", "app_id", "credential_id", "status"): "what one app has begun and not ended",
    ("jobs", "credential_id", "open"): "what an account has open",
    ("jobs", "failure", "place", "status"): "what was stopped within a day",
    ("messages", "app_id", "to"): "what one recipient was sent",
    ("occurrences", "fires_at", "of.waiting", "owner"): "the bus's, counted for all viewers together",
    ("occurrences", "generation", "kind", "owner", "visible_at"): "what one schedule has ahead",
    ("sessions", "is_link", "namespace"): "one person's",
}
"""Queries for which an index reads more than they need, or in another order, and why that is little."""

_TRIES = 5
_SHARED = 14
_DIGEST = re.compile(rb'data-digest="(\w+)"')
_LINK = re.compile(r'<a [^>]*href="(/ui[^"?#]*)')
NOISE = 300
"""More than what a search finds."""


@dataclass
class Costs:
    """Pages as an admin opens them. `empty` has what those cost of which nothing had to be made."""

    house: House
    commands: Commands
    reads: InnerReads
    routes: list[PageRoute]
    empty: dict[str, tuple[int, int]] = field(default_factory=dict)

    async def count(self, path: str, **headers: str) -> tuple[int, int]:
        """How many reads and commands the page makes, once it was opened before."""
        assert (await self.house.admin.get(path)).status == 200, path
        self.reads.count = 0
        self.commands.counts.clear()
        await self.house.admin.get(path, **headers)
        return self.reads.count, self.commands.counts.total()

    def forget(self) -> None:
        """Forget what pages have read together. What they read from now on is kept however long this machine takes."""
        self.house.admin.app.state[SHARED_READS] = shared_reads(lambda: 0.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def costs(commands: Commands, house: House) -> AsyncIterator[Costs]:
    state = house.admin.app.state
    inner, shared = state[INNER], state[SHARED_READS]
    state[INNER] = InnerReads(inner)
    costs = Costs(house, commands, state[INNER], page_routes(Rooms(house.servers)))
    costs.forget()
    yield costs
    state[INNER], state[SHARED_READS] = inner, shared


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def made(costs: Costs) -> dict[str, str]:
    for route in costs.routes:
        if "{" not in route.path:
            costs.empty[route.path] = await costs.count(f"/ui{route.path}".rstrip("/"))
    house, people = costs.house, b"Recipient\nana@example.com\n"
    file = await house.file("people.csv", people)
    return await make_some(house.admin, house.store, f"user:{ADMIN}", await house.app(), file, count=COUNT, many=MANY)


async def test_no_page_asks_much_be_there_nothing_or_much(costs: Costs, made: dict[str, str]) -> None:
    assert costs.empty and {path: each for path, each in costs.empty.items() if is_dear(path, each)} == {}
    full = {route.path: await costs.count(address_of(route, made)) for route in costs.routes}
    assert {path: each for path, each in full.items() if is_dear(path, each)} == {}
    assert set(MOST) == set(full)


async def test_a_refresh_asks_for_what_moves(costs: Costs, made: dict[str, str]) -> None:
    """What all see alike, and what is dear to count, is not read for each refresh of each viewer."""
    paths = {route.path: address_of(route, made) for route in costs.routes if route.path in REFRESHED}
    counted = {path: (await costs.count(at, hx_request="true"))[1] for path, at in paths.items()}
    assert {path: count for path, count in counted.items() if count > REFRESHED[path] + _SHARED} == {}


async def test_a_refresh_with_nothing_new_sends_nothing(costs: Costs, made: dict[str, str]) -> None:
    refreshing = [address_of(route, made) for route in costs.routes if route.refresh_seconds]
    assert len(refreshing) > 15
    assert [path for path in refreshing if not await _is_still(costs.house.admin, path)] == []


async def test_every_link_leads_to_a_page(costs: Costs, made: dict[str, str]) -> None:
    pages = [re.compile(re.sub(r"{\w+:str}", "[^/]+", f"/ui{route.path}".rstrip("/"))) for route in costs.routes]
    lost: dict[str, str] = {}
    for route in costs.routes:
        body = (await costs.house.admin.get(address_of(route, made))).body.decode()
        links = {link for link in _LINK.findall(body) if not link.startswith("/ui/files/")}
        lost |= {link: route.path for link in links if not any(page.fullmatch(link) for page in pages)}
    assert lost == {}


async def test_a_search_examines_what_it_finds_and_no_more(
    costs: Costs, commands: Commands, made: dict[str, str]
) -> None:
    app_id, database = made["app_id"], costs.house.store._database
    others = [{"_id": f"noise-{n}", "app_id": app_id, "to": f"noise{n}@example.com"} for n in range(NOISE)]
    await database["messages"].insert_many(others)
    await database["suppressions"].insert_many([{"_id": f"noise-{n}", "app_id": app_id} for n in range(NOISE)])
    commands.sent.clear()
    assert (await costs.house.admin.get(f"/ui/find?q=ana@example.com&app={app_id}")).status == 200
    queries = [command for command in commands.sent if {"find", "aggregate"} & {*command}]
    told = await explain(database, queries)
    assert (told.keys < NOISE, told.documents < NOISE, told.unknown) == (True, True, 0)
    for name in ("messages", "suppressions"):
        await database[name].delete_many({"_id": {"$regex": "^noise-"}})


@pytest.mark.proof
async def test_an_index_serves_each_query_of_each_page(costs: Costs, commands: Commands, made: dict[str, str]) -> None:
    database = costs.house.store._database
    costs.forget()
    commands.sent.clear()
    for route in costs.routes:
        assert (await costs.house.admin.get(address_of(route, made))).status == 200, route.path
    queries = {(query.collection, *sorted(query.filter), query.sort): query for query in read_queries(commands.sent)}
    keys = {name: await keys_of(database[name]) for name in {query.collection for query in queries.values()}}
    served = {what for what, query in queries.items() if any(serves(each, query) for each in keys[query.collection])}
    assert {what[:-1] for what in queries.keys() - served} <= {*SORTED_OR_COUNTED}
    planned = [queries[what] for what in served if queries[what].filter and "_id" not in what]
    assert len(planned) > 15 and [query for query in planned if not await plans_index(database, query)] == []


async def test_suppressions_that_are_there_are_found_by_their_ids(
    costs: Costs, commands: Commands, made: dict[str, str]
) -> None:
    """Else a list that is sent again takes a look at all suppressions for each of its addresses."""
    app_id, people = made["app_id"], [f"p{number}@example.com" for number in range(20)]
    for cause in ("unsubscribe", "hand", "hand", "unsubscribe"):
        commands.sent.clear()
        items = [{"channel": "mail", "address": each, "cause": cause} for each in people]
        reply = await costs.house.admin.post(f"/apps/{app_id}/suppressions/bulk", items)
        assert (reply.status, len(reply.json)) == (200, len(people))
        sent = [command for command in commands.sent if "suppressions" in (command.get("find"), command.get("update"))]
        assert {*map(tuple, update_filters(sent))} | {tuple(query.filter) for query in read_queries(sent)} == {("_id",)}


async def _is_still(client: Client, path: str) -> bool:
    """Whether a refresh tells that nothing is new. A picture's time may just go on by a step, so it is asked again."""
    for _ in range(_TRIES):
        shown = _DIGEST.search((await client.get(path, hx_request="true")).body)
        assert shown is not None, path
        if (await client.get(path, hx_request="true", x_shown=shown[1].decode())).status == 204:
            return True
    return False


def is_dear(path: str, counted: tuple[int, int]) -> bool:
    """Whether a page makes more reads or commands than it may. What is read once a second for all counts in some runs
    and not in others."""
    reads, commands = MOST.get(path, (0, 0))
    return counted[0] > reads or counted[1] > commands + _SHARED
