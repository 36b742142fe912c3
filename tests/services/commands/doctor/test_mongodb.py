"""Faults of MongoDB that are made on purpose, found, and mended by the remedies. `test_rules.py` has others."""

import pytest

from services.commands.doctor.questions import Level
from shared.core.documents import OLDEST, VERSION
from shared.store import Store
from tests.services.commands.doctor.patient import Patient

pytestmark = [pytest.mark.faulty_server, pytest.mark.native]

INIT = (Level.FAULT, "MongoDB", "init")


async def test_what_init_makes_is_missing(patient: Patient) -> None:
    await patient.database["jobs"].drop_index("group_id_1")
    await patient.database["meta"].update_one({"_id": "schema"}, {"$set": {"version": VERSION - 1}})
    stamp, indexes = await patient.heal(INIT, INIT)
    assert (indexes.sentence, indexes.remedy) == ("missing indexes: jobs: group_id", "carillon init")
    assert stamp.remedy == "carillon init"

    await patient.database["meta"].delete_one({"_id": "schema"})
    await patient.database.drop_collection("imports")
    await patient.database.drop_collection("file_cuts")
    _, indexes = await patient.heal(INIT, INIT)
    assert indexes.sentence == "missing collections: file_cuts, imports"


async def test_an_index_that_prevents_making_another_and_one_that_carillon_does_not_know(patient: Patient) -> None:
    await patient.database["jobs"].create_index([("created_by", 1)])
    users = patient.database["users"]
    await users.drop_index("email_1")
    await users.create_index([("email", 1)])  # two users could have one address
    [hindering] = await patient.heal(INIT)
    assert hindering.remedy.endswith("&& carillon init")
    assert (await users.index_information())["email_1"]["unique"]


async def test_a_stamp_of_a_later_release(patient: Patient) -> None:
    meta = patient.database["meta"]
    await meta.update_one({"_id": "schema"}, {"$set": {"version": VERSION + 1}})
    await patient.these_ills()
    await meta.update_one({"_id": "schema"}, {"$set": {"oldest": VERSION + 1}})
    [ill] = await patient.these_ills(INIT)
    assert ill.sentence.endswith("run a newer release")
    await meta.update_one({"_id": "schema"}, {"$set": {"version": VERSION, "oldest": OLDEST}})


async def test_a_server_that_is_away_is_told_once_and_a_member_that_is_away_is_a_warning(patient: Patient) -> None:
    url = patient.environment["CARILLON_STORE_URL"]
    patient.environment["CARILLON_STORE_URL"] = "mongodb://127.0.0.1:9/carillon"
    [ill] = await patient.these_ills((Level.FAULT, "MongoDB", "login"))
    assert ill.sentence == "127.0.0.1:9: connection refused"
    patient.environment["CARILLON_STORE_URL"] = url.replace("mongodb://", "mongodb://127.0.0.1:9,")
    [ill] = await patient.these_ills((Level.WARNING, "MongoDB", "login"))
    assert ill.sentence == "127.0.0.1:9: connection refused"


async def test_the_count_of_equal_updates_is_asked_of_the_stamp_which_stays(store: Store) -> None:
    before = await store._database["meta"].find_one({"_id": "schema"})
    assert before is not None
    assert await store.inspection.count_equal_updates() == 0
    assert await store._database["meta"].find_one({"_id": "schema"}) == before
