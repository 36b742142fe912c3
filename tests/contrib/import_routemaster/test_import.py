"""An import keeps tokens, owners and subscriptions, can be repeated, and overwrites nothing that was changed here."""

from typing import Any

import pytest
from msgspec.structs import replace

from carillon_imports.carry import ImportOptions
from carillon_imports.routemaster import bring
from services.wiring.servers import Servers
from shared.core.errors import Invalid, Unavailable
from tests.contrib.import_routemaster.conftest import NEW_ROOT, NewBus, counts
from tests.contrib.import_routemaster.routemaster import ROOT

pytestmark = [pytest.mark.imports, pytest.mark.native]

APP, READER, WORD = "app--deadbeef", "reader:1_x", "word"
EVENT = {"type": "create", "url": "https://app.example.com/widgets/1"}


def fill(bus: NewBus) -> None:
    bus.old.tokens |= {APP: "app", READER: "The reader", WORD: "app"}
    bus.old.topics |= {"widgets": (APP, 1_234), "orders": (WORD, 0)}
    bus.old.subscribe(READER, "widgets", "unborn", uuid="i:me", max_events=5, timeout=0)
    bus.old.subscribe(APP, "orders", callback="https://user@app.example.com:8443/a/b", uuid="", max_events=20_000)


async def test_clients_go_on_with_what_they_had(bus: NewBus) -> None:
    fill(bus)
    assert counts(await bus.bring()) == {"brought": 7}
    assert {method for method, _ in bus.old.asked} == {"GET"}
    assert bus.told["subscribers", "The reader"] == ("brought", "")
    assert await bus.topics() == {"widgets": "app", "orders": "app", "unborn": None}
    shown = await bus.subscribers()
    assert [each.pop("events") for each in shown.values()] == [{"sent": 0, "queued": 0, "oldest": None}] * 2
    callback = "https://app.example.com/events"
    assert shown == {
        "The reader": {
            "uuid": "i:me", "callback": callback, "max_events": 5, "timeout": 0, "topics": ["unborn", "widgets"],
        },
        "app": {
            "uuid": "user", "callback": "https://app.example.com:8443/a/b", "max_events": 10_000, "timeout": 500,
            "topics": ["orders"],
        },
    }  # fmt: skip
    published = {
        (token, topic): (await bus.ask("POST", f"/topics/{topic}", EVENT, token=token)).status_code
        for token in (APP, WORD, "app--DEADBEEF")
        for topic in ("widgets", "orders")
    }
    assert list(published.values()) == [200, 403, 403, 200, 401, 401]
    mine = {each["subscriber"] for each in (await bus.ask("GET", "/subscribers", token=READER)).json()}
    assert mine == {READER, "app"}
    kept = str(await bus.documents())
    assert not any(secret in kept for secret in (APP, READER, f"'{WORD}'"))


async def test_a_second_run_and_a_dry_one_change_nothing(bus: NewBus) -> None:
    fill(bus)
    before = await bus.documents()
    assert counts(await bus.bring(dry_run=True)) == {"brought": 7}
    assert await bus.documents() == before
    await bus.bring()
    before = await bus.documents()
    for dry_run in (False, True):
        assert counts(await bus.bring(dry_run=dry_run)) == {"as before": 7}
        assert bus.told == {}
        assert await bus.documents() == before
    # Who is killed has brought things and not noted them.
    await bus.store._database["imports"].delete_many({})
    assert counts(await bus.bring()) == {"as before": 7}
    assert await bus.documents() == before


async def test_what_is_over_a_limit_is_named_by_a_dry_run_too(bus: NewBus) -> None:
    bus.old.tokens |= {APP: "app", READER: "reader"}
    bus.old.topics |= {f"topic_{letter}": (APP, 1) for letter in "abc"}
    bus.old.subscribe(READER, *bus.old.topics)
    few = replace(bus.servers.settings.bus, topics_per_namespace=2, topics_per_subscription=2)
    settings = replace(bus.servers.settings, bus=few)
    limited = NewBus(Servers(settings, service="import", store=bus.store), bus.old, bus.url)
    for dry_run in (True, False):
        assert counts(await limited.bring(dry_run=dry_run)) == {"brought": 4, "skipped": 2}
        skipped = {name: reason for name, (outcome, reason) in limited.told.items() if outcome == "skipped"}
        assert skipped == {
            ("topics", "topic_c"): "its publisher owns 2 topics here",
            ("subscribers", "reader"): "it has over 2 topics",
        }


async def test_what_breaks_our_rules_is_named_and_keeps_nothing_else_out(bus: NewBus) -> None:
    fill(bus)
    bus.old.tokens |= {"Capital": "big", "x": "tab\t", "odd": "odd"}
    bus.old.topics |= {
        "a-b": (APP, 1), "orphan": ("gone--1", 1), "of_big": ("Capital", 1), "carillon_notices": (APP, 1),
    }  # fmt: skip
    closed = "10.0.0.1 is a private address; the setting callbacks.allowed_networks can allow its network"
    subscriptions: dict[str, tuple[dict[str, Any], str]] = {
        "plain": ({"callback": "http://app.example.com"}, "callback: must be an https URL without a query"),
        "query": ({"callback": "https://app.example.com/?k=secret"}, "callback: must be an https URL without a query"),
        "private": ({"callback": "https://10.0.0.1/"}, f"callback: invalid URL: {closed}"),
        "topic": ({"topics": ["widgets", "Bad"]}, "topics Bad: a topic's name is 1 to 64 of a to z and '_'"),
        "slow": ({"timeout": 3_600_001}, "it cannot be read: timeout must be an integer <= 3600000"),
        "nobody": ({"callback": None}, "it cannot be read: callback must be a string, not null"),
        "odd": ({"uuid": "é"}, "uuid: at most 255 printable characters of ASCII"),
    }
    for token, (fields, _) in subscriptions.items():
        bus.old.tokens[token] = token
        bus.old.subscribe(token, **({"topics": ["widgets"]} | fields))
    bus.old.subscribe("gone--2", "widgets")
    bus.old.tokens["bare"] = "bare"
    bus.old.subscribe("bare", uuid=None)
    await bus.bring()
    skipped = {name: told for name, told in bus.told.items() if told[0] == "skipped"}
    orphaned = "its token is gone there, was not brought, or was deleted here"
    reasons = {
        ("tokens", "big"): "a token is 1 to 64 of a to z, 0 to 9, ':', '_' and '-'",
        ("tokens", "tab\t"): "invalid name: 1 to 255 printable characters are needed",
        ("topics", "a-b"): "a topic's name is 1 to 64 of a to z and '_'",
        ("topics", "orphan"): orphaned,
        ("topics", "of_big"): orphaned,
        ("topics", "carillon_notices"): "Carillon alone publishes on it here",
        ("subscribers", "(none)"): orphaned,
    } | {("subscribers", name): reason for name, (_, reason) in subscriptions.items()}
    assert {name: reason for name, (_, reason) in skipped.items()} == reasons
    assert bus.told["subscribers", "bare"][0] == "brought"
    assert "no uuid" in bus.told["subscribers", "bare"][1]
    assert {"app", "The reader", "bare"} == {*await bus.subscribers()}
    assert {name for name, of in (await bus.topics()).items() if of} == {"widgets", "orders"}


async def test_what_was_changed_on_either_side_is_not_undone(bus: NewBus) -> None:
    fill(bus)
    bus.old.tokens["late"] = "late"
    for name in ("unborn_too", "deleted"):
        bus.old.topics[name] = (APP, 0)
    # A subscriber was here first: the topic that it made is nobody's, and comes to its publisher.
    assert (await bus.ask("POST", "/api_tokens", {"name": "early", "token": "early"})).status_code == 201
    wish = {"topics": ["widgets"], "callback": "https://early.example.com"}
    assert (await bus.ask("POST", "/subscriber", wish, token="early")).status_code == 204
    bus.old.tokens["early"] = "renamed"
    bus.old.subscribe("early", "widgets", callback="https://there.example.com")
    await bus.bring()
    assert bus.told["tokens", "renamed"][0] == bus.told["subscribers", "early"][0] == "skipped"
    assert (await bus.topics())["widgets"] == "app"

    wish = {"topics": ["widgets"], "callback": "https://here.example.com", "uuid": "me"}
    assert (await bus.ask("POST", "/subscriber", wish, token=READER)).status_code == 204
    assert (await bus.ask("DELETE", "/topics/deleted", token=APP)).status_code == 204
    assert (await bus.ask("DELETE", "/api_tokens/late")).status_code == 204
    bus.old.subscribe(APP, "orders", "widgets", max_events=7)
    bus.old.topics |= {"unborn_too": (READER, 5), "unborn": (READER, 1)}
    assert counts(await bus.bring()) == {"updated": 2, "left": 2, "brought": 1, "skipped": 2, "as before": 6}
    assert bus.told["tokens", "late"] == bus.told["topics", "deleted"]
    topics, shown = await bus.topics(), await bus.subscribers()
    assert (topics["unborn_too"], topics["unborn"], "deleted" in topics) == ("The reader", "The reader", False)
    assert (shown["app"]["max_events"], shown["app"]["topics"]) == (7, ["orders", "widgets"])
    assert shown["The reader"]["callback"] == "https://here.example.com"
    assert shown["early"]["callback"] == "https://early.example.com"


async def test_what_is_no_routemaster_is_told(bus: NewBus) -> None:
    fill(bus)
    before = await bus.documents()
    for url, key, said in (
        (bus.old.url, "wrong", "does not take this key"),
        (f"{bus.old.url}/elsewhere", ROOT, "answers 404"),
        (bus.url, NEW_ROOT, "this is a Carillon"),
        ("http://bus.example.com", ROOT, "https://"),
        (f"https://{ROOT}@bus.example.com", ROOT, "the key has an option of its own"),
    ):
        with pytest.raises(Invalid, match=said) as raised:
            await bring(url, key, bus.servers, options=ImportOptions())
        assert key not in str(raised.value)
    with pytest.raises(Unavailable, match="the Routemaster does not answer"):
        await bring("http://127.0.0.1:1", ROOT, bus.servers, options=ImportOptions())
    assert await bus.documents() == before
