"""What the doctor finds of the push tables, and that it heals."""

import secrets
from urllib.parse import urlsplit

import pytest

from services.commands.doctor.findings import Level
from tests.services.commands.doctor.patient import COLUMNS, TABLE, Patient

pytestmark = pytest.mark.native


def found(level: Level, check: str) -> tuple[Level, str, str]:
    return level, "PostgreSQL", check


async def test_columns_indexes_and_statistics(patient: Patient) -> None:
    await patient.sql(f"DROP TABLE {TABLE}")
    await patient.sql(f"CREATE TABLE {TABLE} (seq_id text, user_id text, token text, locale text)")
    await patient.sql(f"INSERT INTO {TABLE} VALUES ('7', 'u', 't', 'en')")
    column, key, by_key, by_user, statistics = await patient.heal(
        found(Level.FAULT, "columns"),
        found(Level.FAULT, "columns"),
        found(Level.WARNING, "indexes"),
        found(Level.WARNING, "indexes"),
        found(Level.WARNING, "statistics"),
    )
    assert column.sentence == f"{TABLE} lacks tz"
    assert key.sentence == f"seq_id of {TABLE} is no integer but text"
    assert ("seq_id" in by_key.sentence, "user_id" in by_user.sentence) == (True, True)
    assert statistics.remedy.endswith(f"""--command 'ANALYZE "{TABLE}"'""")


async def test_a_view_is_no_table_to_index_or_to_alter(patient: Patient) -> None:
    await patient.sql(f"ALTER TABLE {TABLE} RENAME TO devices; CREATE VIEW {TABLE} AS SELECT * FROM devices")
    [told] = [each for each in await patient.examine() if (each.of, each.check) == ("PostgreSQL", "indexes")]
    assert (told.level, told.remedy) == (Level.OK, "")
    assert told.sentence.endswith(f"; {TABLE} is a view: index seq_id and user_id in the table that it reads")
    await patient.sql(f"DROP VIEW {TABLE}; CREATE VIEW {TABLE} AS SELECT seq_id, user_id, token, locale FROM devices")
    [ill] = await patient.these_ills(found(Level.FAULT, "columns"))
    assert (ill.sentence, ill.remedy) == (f"the view {TABLE} lacks tz", "")


@pytest.mark.parametrize(
    ("made", "ills"),
    [
        (f"CREATE MATERIALIZED VIEW {TABLE} AS SELECT * FROM devices; ANALYZE {TABLE}", 2),
        (f"CREATE TABLE {TABLE} {COLUMNS} PARTITION BY RANGE (seq_id)", 1),
    ],
)
async def test_the_index_of_each_kind_of_table_can_be_made(patient: Patient, made: str, ills: int) -> None:
    await patient.sql(f"ALTER TABLE {TABLE} RENAME TO devices")
    await patient.sql(made)
    await patient.heal(*[found(Level.WARNING, "indexes")] * ills)


async def test_an_app_without_a_table(patient: Patient) -> None:
    await patient.sql(f"DROP TABLE {TABLE}")
    [ill] = await patient.these_ills(found(Level.WARNING, "tables"))
    assert ill.sentence == f"the app doctor has no push table: {TABLE} or doctor_gcm"


async def test_a_login_that_is_refused_and_a_table_that_is_closed(patient: Patient) -> None:
    role = f"reader_{secrets.token_hex(4)}"
    url = patient.environment["CARILLON_AUDIENCE_URL"]
    parts = urlsplit(url)
    as_reader = parts._replace(netloc=f"{role}:s3cret-word@{parts.hostname}:{parts.port}").geturl()
    patient.environment["CARILLON_AUDIENCE_URL"] = as_reader
    [ill] = await patient.these_ills(found(Level.FAULT, "login"))
    assert role in ill.sentence
    assert "s3cret-word" not in str(ill)

    patient.environment["CARILLON_AUDIENCE_URL"] = url
    await patient.sql(f"CREATE ROLE {role} LOGIN")
    patient.environment["CARILLON_AUDIENCE_URL"] = as_reader
    try:
        [ill] = await patient.heal(found(Level.FAULT, "tables"))
        assert "GRANT SELECT" in ill.remedy
    finally:
        patient.environment["CARILLON_AUDIENCE_URL"] = url
        await patient.sql(f"DROP OWNED BY {role}")
        await patient.sql(f"DROP ROLE {role}")


async def test_a_database_that_is_missing(patient: Patient) -> None:
    url = patient.environment["CARILLON_AUDIENCE_URL"]
    patient.environment["CARILLON_AUDIENCE_URL"] = f"{url}_new"
    [ill] = await patient.these_ills(found(Level.FAULT, "login"))
    try:
        await patient.take(ill.remedy)
        await patient.these_ills(found(Level.WARNING, "tables"))
    finally:
        patient.environment["CARILLON_AUDIENCE_URL"] = url
        await patient.sql(f'DROP DATABASE "{urlsplit(url).path[1:]}_new" WITH (FORCE)')
