"""Faults that the servers of the tests cannot have: one broker, a stand-in of MongoDB, connections on this machine."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from services.commands.doctor import mongodb, others
from services.commands.doctor.brokers import (
    check_kafka,
    judge_log_retention,
    judge_marker_retention,
    judge_replication,
    judge_topic,
)
from services.commands.doctor.questions import Answer, Given, Level
from services.wiring.servers import Servers
from shared.bus.subscriptions import seal_secret
from shared.core.errors import Denied, Unserved
from shared.drivers.kafka.cluster import Cluster, TopicFacts
from shared.drivers.mongo.database import Grants, Membership, StoreInspection, find_allowed
from shared.drivers.postgres.inspection import FoundTable
from shared.drivers.secrets import KeyRing, fresh_key
from shared.messages.rules.credentials import Credential
from shared.runtime.bus_settings import BusSettings
from shared.runtime.configuration import load
from shared.runtime.server_settings import StreamSettings
from shared.runtime.settings import ApiSettings
from tests.bus.store.made_subscriptions import NOON, made

LOG, SERVERS = "carillon.bus", "k1:9092,k2:9092"
POSTGRESQL = "postgresql://reader:secret@db.example.com/push"


def check(answer: Answer, *expected: tuple[Level, str, str]) -> None:
    """The answer has these levels, words and ends of remedies; an empty end means that there is no remedy."""
    assert [found.level for found in answer] == [level for level, _, _ in expected], answer
    for found, (_, words, remedy) in zip(answer, expected, strict=True):
        assert words in found.sentence
        assert found.remedy.endswith(remedy)
        assert bool(found.remedy) == bool(remedy)


ALL_RIGHTS = Grants("ana", ())


class ToldStore(StoreInspection):
    """Answers as it is told."""

    def __init__(self, membership: Membership, grants: Grants, equal: int, killing: Exception | None) -> None:
        self._membership, self._grants, self._equal, self._killing = membership, grants, equal, killing

    async def read_grants(self, needed: object) -> Grants:
        return self._grants

    async def read_membership(self) -> Membership:
        return self._membership

    async def write_nothing(self) -> None:
        pass

    async def count_equal_updates(self) -> int:
        return self._equal

    async def end_no_session(self) -> None:
        if self._killing is not None:
            raise self._killing


def given_store(
    *,
    host: str = "db.example.com",
    replica_set: str = "rs0",
    router: bool = False,
    seconds: float = 0,
    grants: Grants = ALL_RIGHTS,
    equal: int = 0,
    killing: Exception | None = None,
) -> Given:
    membership = Membership(replica_set, timedelta(seconds=seconds), is_router=router)
    store = SimpleNamespace(inspection=ToldStore(membership, grants, equal, killing))
    settings = load({"CARILLON_STORE_URL": f"mongodb://ana:secret@{host}/carillon"})
    return Given(Servers(settings, service="test", store=store), ())


ROLE = """db.getSiblingDB("admin").grantRolesToUser("ana", [{role: "readWrite", db: "carillon"}])"""


@pytest.mark.parametrize(
    ("question", "told", "level", "words", "remedy"),
    [
        (mongodb.check_rights, {}, Level.OK, "ana may do all", ""),
        (
            mongodb.check_rights,
            {"grants": Grants("ana", ["insert", "createIndex"], "admin")},
            Level.FAULT,
            "ana may not insert, createIndex",
            f"mongosh mongodb://db.example.com/carillon --username '<admin>' --eval '{ROLE}'",
        ),
        (mongodb.check_rights, {"grants": Grants("", ())}, Level.WARNING, "needs no login", ""),
        (mongodb.check_rights, {"grants": Grants("", ()), "host": "127.0.0.1"}, Level.OK, "on this machine", ""),
        (mongodb.check_replica_set, {}, Level.OK, "rs0", ""),
        (mongodb.check_replica_set, {"replica_set": "", "router": True}, Level.OK, "mongos", ""),
        (mongodb.check_replica_set, {"replica_set": ""}, Level.FAULT, "no transactions", "--eval 'rs.initiate()'"),
        (mongodb.check_fencing, {}, Level.OK, "ends sessions", ""),
        (mongodb.check_fencing, {"killing": Denied("no")}, Level.FAULT, "killSessions does not work (no)", ""),
        (mongodb.check_fencing, {"killing": Unserved("no")}, Level.FAULT, "killSessions does not work (no)", ""),
        (mongodb.check_fencing, {"equal": 1}, Level.FAULT, "leaves a document as it is counts as a change", ""),
        (mongodb.check_clock, {"seconds": 0.9}, Level.OK, "less than a second", ""),
        (mongodb.check_clock, {"seconds": 1.1}, Level.WARNING, "1.1 s behind", "timedatectl set-ntp true"),
        (mongodb.check_clock, {"seconds": -60}, Level.WARNING, "60.0 s ahead of", "timedatectl set-ntp true"),
    ],
)
async def test_mongodb(question: Any, told: dict[str, Any], level: Level, words: str, remedy: str) -> None:
    check(await question(given_store(**told)), (level, words, remedy))


def test_rights_count_that_hold_for_the_whole_database() -> None:
    whole = {"resource": {"db": "carillon", "collection": ""}, "actions": ["find", "insert"]}
    one = {"resource": {"db": "carillon", "collection": "jobs"}, "actions": ["update"]}
    other = {"resource": {"db": "other", "collection": ""}, "actions": ["remove"]}
    everywhere = {"resource": {"anyResource": True}, "actions": ["listCollections"]}
    cluster = {"resource": {"cluster": True}, "actions": ["createIndex"]}
    found = find_allowed([whole, one, other, everywhere, cluster], "carillon")
    assert found == {"find", "insert", "listCollections"}


async def test_brokers_that_are_too_old() -> None:
    class Old(Cluster):
        async def find_brokers(self) -> dict[int, bool]:
            return {1: False, 2: True, 3: True}

    stream = SimpleNamespace(inspection=object.__new__(Old))
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
        settings = load({"CARILLON_STREAM_URL": f"kafka://127.0.0.1:{server.sockets[0].getsockname()[1]}"})
        answer = await check_kafka(Given(Servers(settings, service="test", stream=stream), ()))
    check(answer, (Level.FAULT, "broker 2, 3", ""))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (TopicFacts(LOG, 16), (Level.OK, "16 partitions", "")),
        (TopicFacts(LOG, 17), (Level.OK, "17 partitions", "")),
        (TopicFacts(LOG, 15), (Level.FAULT, "15 partitions of 16", "more")),
        (TopicFacts(LOG, 16, leaderless=2), (Level.FAULT, "2 partitions of carillon.bus have no leader", "")),
        (None, (Level.FAULT, "is missing", "carillon init")),
    ],
)
def test_a_topic(found: TopicFacts | None, expected: tuple[Level, str, str]) -> None:
    check(judge_topic(LOG, found, 16, "more"), expected)


def topic(copies: int, **settings: str) -> TopicFacts:
    return TopicFacts("t", 8, copies, 0, {name.replace("_", "."): value for name, value in settings.items()})


@pytest.mark.parametrize(
    ("found", "brokers", "expected"),
    [
        (topic(3, min_insync_replicas="2"), 3, (Level.OK, "1 topics keep", "")),
        (topic(1, min_insync_replicas="1"), 1, (Level.OK, "for as long as the one broker does", "")),
        (topic(1), 3, (Level.WARNING, "fewer than 3 copies: t (1)", "")),
        (
            topic(3, min_insync_replicas="1"),
            3,
            (Level.WARNING, "its leader alone", "--entity-name t --add-config min.insync.replicas=2"),
        ),
        (
            topic(3, unclean_leader_election_enable="true"),
            3,
            (Level.WARNING, "missed some", "--entity-name t --add-config unclean.leader.election.enable=false"),
        ),
    ],
)
def test_replication(found: TopicFacts, brokers: int, expected: tuple[Level, str, str]) -> None:
    check(judge_replication([found], StreamSettings(), brokers, SERVERS), expected)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"retention.ms": "-1", "cleanup.policy": "delete"}, (Level.OK, "events are kept", "")),
        ({"retention.ms": "-1", "cleanup.policy": "compact"}, (Level.FAULT, "same key", "cleanup.policy=delete")),
        ({"retention.ms": "-1", "retention.bytes": "9"}, (Level.FAULT, "beyond 9 bytes", "retention.bytes=-1")),
        ({"retention.ms": "1000"}, (Level.FAULT, "bus.log_days says 7", "retention.ms=604800000")),
        ({}, (Level.WARNING, "DescribeConfigs", "")),
    ],
)
def test_the_retention_of_the_log(settings: dict[str, str | None], expected: tuple[Level, str, str]) -> None:
    check(judge_log_retention(TopicFacts(LOG, 16, 1, 0, settings), BusSettings(), SERVERS), expected)


def test_a_retention_that_kafka_does_not_tell_is_a_warning() -> None:
    check(judge_marker_retention({1: {}}, StreamSettings()), (Level.WARNING, "DescribeConfigs", ""))


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (FoundTable("shop_apns"), []),
        (
            FoundTable("shop_apns", unindexed=["seq_id"]),
            [(Level.WARNING, "begins with seq_id", """'CREATE INDEX CONCURRENTLY ON "shop_apns" (seq_id)'""")],
        ),
        (
            FoundTable("shop_apns", kind="v", unindexed=["seq_id", "user_id"]),
            [(Level.OK, "a view: index the columns of its table that are seq_id and user_id", "")],
        ),
        (FoundTable("shop_apns", kind="v", missing=["tz"]), [(Level.FAULT, "shop_apns lacks tz", "")]),
    ],
)
def test_a_push_table(table: FoundTable, expected: Sequence[tuple[Level, str, str]]) -> None:
    check(list(others.judge_tables([table], POSTGRESQL)), *expected)


def credential(keys: KeyRing, id: str = "post") -> Credential:
    return Credential(
        id=id, app_id="app", name="post", kind="http", fields={}, secret=keys.seal({"signingSecret": "x"}, "post"),
        rate=10, max_in_flight=20, test_recipient="ana@example.com", created_by="ana", created_at=NOON, updated_at=NOON,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("first", "last", "id", "expected"),
    [
        (0, 1, "post", [(Level.OK, "open all 2 secrets", "")]),
        (1, 2, "post", [(Level.FAULT, "of post, orders of token:n", "post --app <its app> @<a file with the secret>")]),
        (
            0,
            0,
            "post",
            [(Level.FAULT, "has no key, and 2 secrets are sealed", "'<the key that they were sealed under>'")],
        ),
        (-1, 1, "post", [(Level.WARNING, "1 secrets of credentials", "carillon credentials reencrypt")]),
        (0, 1, "moved", [(Level.FAULT, "no key opens the secret of post:", "<a file with the secret>")]),
    ],
)
def test_keys(first: int, last: int, id: str, expected: Sequence[tuple[Level, str, str]]) -> None:
    ring = [fresh_key(), fresh_key()]
    sealing, empty = KeyRing(ring[:1]), made("orders")
    subscription = replace(empty, secrets=(seal_secret(sealing, empty.id)[0],))
    keys = KeyRing(ring[::-1] if first < 0 else ring[first:last])
    check(others.judge_keys([credential(sealing, id)], [subscription], keys, NOON), *expected)


@pytest.mark.parametrize(
    ("bound_us", "clocks", "expected"),
    [
        (5_000, 1, (Level.OK, "within 5.0 ms", "")),
        (5_001, 1, (Level.WARNING, "providers.clock_ms is 5", "export CARILLON_PROVIDERS_CLOCK_MS=11")),
        (100, 2, (Level.FAULT, "2 clocks", "export CARILLON_STORE_URL='mongodb://<one mongos alone>/<database>'")),
    ],
)
def test_the_time_of_the_database(bound_us: int, clocks: int, expected: tuple[Level, str, str]) -> None:
    check(others.judge_time(bound_us, allowed_ms=5, clocks=clocks), expected)


DAY = 86_400


@pytest.mark.parametrize(
    ("weaknesses", "left", "expected"),
    [
        ([], {}, (Level.OK, "encrypted", "")),
        ([], {"db.example.com": 31 * DAY}, (Level.OK, "encrypted", "")),
        ([], {"db.example.com": 29 * DAY}, (Level.WARNING, "db.example.com ends in 29 days", "")),
        ([("stream.url", "is plain")], {}, (Level.WARNING, "stream.url: is plain", "")),
    ],
)
def test_connections(
    weaknesses: Sequence[tuple[str, str]], left: dict[str, float], expected: tuple[Level, str, str]
) -> None:
    check(others.judge_tls(weaknesses, left), expected)


@pytest.mark.parametrize(
    ("networks", "secret", "level"),
    [
        (("127.0.0.0/8", "::1/128"), "", Level.OK),
        (("10.0.0.0/24",), "", Level.OK),
        (("10.0.0.0/8",), "", Level.WARNING),
        (("10.0.0.0/8",), "sixteen-characters", Level.OK),
        (("::/0",), "sixteen-characters", Level.FAULT),
    ],
)
def test_proxies(networks: tuple[str, ...], secret: str, level: Level) -> None:
    [found] = others.judge_proxies(ApiSettings(trusted_proxies=networks, proxy_secret=secret))
    assert found.level is level
