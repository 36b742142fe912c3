"""What the doctor finds of MongoDB, and that it heals."""

from datetime import timedelta

import pytest

from services.commands.doctor.findings import Level, Opinion
from services.commands.doctor.mongodb import MongoDb
from shared.domain.errors import Denied
from shared.domain.schema import OLDEST, VERSION
from shared.store import Store
from shared.store.inspection import Grants, Membership, StoreInspection, _allowed_actions
from tests.services.commands.doctor.patient import Patient

pytestmark = pytest.mark.native

STAMP = (Level.FAULT, "MongoDB", "stamp")
INDEXES = (Level.FAULT, "MongoDB", "indexes")


async def test_what_init_makes_is_missing(patient: Patient) -> None:
    await patient.database["jobs"].drop_index("group_id_1")
    await patient.database["meta"].update_one({"_id": "schema"}, {"$set": {"version": VERSION - 1}})
    stamp, indexes = await patient.heal(STAMP, INDEXES)
    assert (indexes.sentence, indexes.remedy) == ("missing: jobs: group_id", "carillon init")
    assert stamp.remedy == "carillon init"

    await patient.database["meta"].delete_one({"_id": "schema"})
    await patient.database.drop_collection("imports")
    await patient.database.drop_collection("file_cuts")
    _, indexes = await patient.heal(STAMP, INDEXES)
    assert indexes.sentence == "missing collections: file_cuts, imports"


async def test_indexes_of_others_and_one_that_stands_in_the_way(patient: Patient) -> None:
    await patient.database["jobs"].create_index([("created_by", 1)])
    users = patient.database["users"]
    await users.drop_index("email_1")
    await users.create_index([("email", 1)])  # two users could have one address
    hindering, foreign = await patient.heal(INDEXES, (Level.WARNING, "MongoDB", "indexes"))
    assert hindering.remedy.endswith("&& carillon init")
    assert "jobs: created_by" in foreign.sentence
    assert (await users.index_information())["email_1"]["unique"]


async def test_a_stamp_of_a_later_release(patient: Patient) -> None:
    meta = patient.database["meta"]
    await meta.update_one({"_id": "schema"}, {"$set": {"version": VERSION + 1}})
    await patient.these_ills()
    await meta.update_one({"_id": "schema"}, {"$set": {"oldest": VERSION + 1}})
    ill = await patient.one_ill(Level.FAULT, "MongoDB", "stamp")
    assert ill.sentence.endswith("run a newer release")
    await meta.update_one({"_id": "schema"}, {"$set": {"version": VERSION, "oldest": OLDEST}})


async def test_a_server_that_is_away_is_told_once(patient: Patient) -> None:
    patient.environment["CARILLON_STORE_URL"] = "mongodb://127.0.0.1:9/carillon"
    ill = await patient.one_ill(Level.FAULT, "MongoDB", "address")
    assert ill.sentence == "127.0.0.1:9: connection refused"


class Told(StoreInspection):
    """Answers that the stand-in for MongoDB never gives."""

    def __init__(
        self, *, grants: Grants | None = None, membership: Membership | None = None, equal_updates: int = 0
    ) -> None:
        self._grants = grants
        self._equal_updates = equal_updates
        self._membership = membership

    async def read_grants(self, needed: object) -> Grants:
        assert self._grants is not None
        return self._grants

    async def read_membership(self) -> Membership:
        assert self._membership is not None
        return self._membership

    async def count_equal_updates(self) -> int:
        return self._equal_updates

    async def end_no_session(self) -> None:
        raise Denied("MongoDB does not allow it")

    async def read_version(self) -> str:
        raise Denied("MongoDB does not accept the user or the password")


async def examined(inspection: Told, host: str = "db.example.com") -> MongoDb:
    store = Store.open("mongodb://ana:secret@localhost/carillon")
    examination = MongoDb(f"mongodb://ana:secret@{host}/carillon", store)
    await store.close()
    examination._inspection = inspection
    return examination


async def test_rights_that_are_missing() -> None:
    examination = await examined(Told(grants=Grants("ana", ["insert", "createIndex"], "admin")))
    [opinion] = await examination.check_rights()
    role = """db.getSiblingDB("admin").grantRolesToUser("ana", [{role: "readWrite", db: "carillon"}])"""
    remedy = f"mongosh mongodb://db.example.com/carillon --username '<admin>' --eval '{role}'"
    assert opinion == Opinion(Level.FAULT, "ana may not insert, createIndex", remedy)


async def test_a_server_that_asks_nobody_who_they_are_is_a_warning_off_this_machine() -> None:
    for host, level in (("db.example.com", Level.WARNING), ("127.0.0.1", Level.OK)):
        examination = await examined(Told(grants=Grants("", ())), host)
        assert [opinion.level for opinion in await examination.check_rights()] == [level]


def test_rights_count_that_hold_for_the_whole_database() -> None:
    whole = {"resource": {"db": "carillon", "collection": ""}, "actions": ["find", "insert"]}
    one = {"resource": {"db": "carillon", "collection": "jobs"}, "actions": ["update"]}
    other = {"resource": {"db": "other", "collection": ""}, "actions": ["remove"]}
    everywhere = {"resource": {"anyResource": True}, "actions": ["listCollections"]}
    cluster = {"resource": {"cluster": True}, "actions": ["createIndex"]}
    assert _allowed_actions([whole, one, other, everywhere, cluster], "carillon") == {
        "find",
        "insert",
        "listCollections",
    }


async def test_a_server_that_ends_no_sessions() -> None:
    """As those of Atlas that many share."""
    [opinion] = await (await examined(Told())).check_sessions()
    assert opinion.level is Level.FAULT
    assert "killSessions does not work (MongoDB does not allow it)" in opinion.sentence


@pytest.mark.parametrize(("counted", "level"), [(0, Level.OK), (1, Level.FAULT)])
async def test_a_server_that_counts_updates_that_change_nothing(counted: int, level: Level) -> None:
    [opinion] = await (await examined(Told(equal_updates=counted))).check_updates()
    assert opinion.level is level
    assert "leaves a document as it is" in opinion.sentence


async def test_the_count_of_equal_updates_is_asked_of_the_stamp_which_stays(store: Store) -> None:
    before = await store._database["meta"].find_one({"_id": "schema"})
    assert before is not None
    assert await store.inspection.count_equal_updates() == 0
    assert await store._database["meta"].find_one({"_id": "schema"}) == before


async def test_a_router_has_transactions_though_it_is_of_no_replica_set() -> None:
    examination = await examined(Told(membership=Membership("", timedelta(), is_router=True)))
    [opinion] = await examination.check_replica_set()
    assert opinion.level is Level.OK


async def test_a_server_alone_has_no_transactions() -> None:
    examination = await examined(Told(membership=Membership("", timedelta())))
    [opinion] = await examination.check_replica_set()
    assert (opinion.level, opinion.remedy.endswith("--eval 'rs.initiate()'")) == (Level.FAULT, True)


@pytest.mark.parametrize(
    ("seconds", "level", "said"),
    [(0.9, Level.OK, "less than"), (1.1, Level.WARNING, "1.1 s behind"), (-60, Level.WARNING, "60.0 s ahead of")],
)
async def test_a_clock_that_is_off(seconds: float, level: Level, said: str) -> None:
    examination = await examined(Told(membership=Membership("rs", timedelta(seconds=seconds))))
    [opinion] = await examination.check_clock()
    assert opinion.level is level
    assert said in opinion.sentence
