"""Faults of the other servers and of settings that are made on purpose, found, and mended by the remedies."""

import asyncio
import secrets
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from services.commands.doctor.questions import Level
from shared.bus.rules.subscriptions import subscription_id
from shared.bus.subscriptions import seal_secret
from shared.drivers.secrets import KeyRing, fresh_key
from tests.bus.store.made_subscriptions import add
from tests.drivers.rabbitmq.proxy import SilencableProxy
from tests.providers.sinks import LOGIN, SmtpSink, smtp
from tests.services.commands.doctor.patient import TABLE, Patient
from tests.services.commands.doctor.test_rules import credential
from tests.stack.mongodb import through_port

pytestmark = [pytest.mark.faulty_server, pytest.mark.native]

KEYS = "CARILLON_PROVIDERS_SECRET_KEYS"
AUDIENCE = "CARILLON_AUDIENCE_URL"
TABLES = (Level.FAULT, "PostgreSQL", "tables")
ONLY_TABLES = (Level.WARNING, "PostgreSQL", "tables")
POSTGRESQL = (Level.FAULT, "PostgreSQL", "login")


async def test_columns_and_indexes(patient: Patient) -> None:
    await patient.sql(f"DROP TABLE {TABLE}")
    await patient.sql(f"CREATE TABLE {TABLE} (seq_id text, user_id text, token text, locale text)")
    await patient.sql(f"INSERT INTO {TABLE} VALUES ('7', 'u', 't', 'en')")
    column, key, by_key, by_user = await patient.heal(TABLES, TABLES, ONLY_TABLES, ONLY_TABLES)
    assert column.sentence == f"{TABLE} lacks tz"
    assert key.sentence == f"seq_id of {TABLE} is no integer but text"
    assert ("seq_id" in by_key.sentence, "user_id" in by_user.sentence) == (True, True)


async def test_an_app_without_a_table_and_one_with_a_view_or_partitions(patient: Patient) -> None:
    await patient.sql(f"ALTER TABLE {TABLE} RENAME TO devices")
    [ill] = await patient.these_ills(ONLY_TABLES)
    assert ill.sentence == f"the app doctor has no push table: {TABLE} or doctor_gcm"
    await patient.sql(f"CREATE VIEW {TABLE} AS SELECT * FROM devices")
    told = [found for found in await patient.examine() if (found.of, found.check) == ONLY_TABLES[1:]]
    assert [(found.level, found.remedy) for found in told] == [(Level.OK, "")]
    await patient.sql(f"DROP VIEW {TABLE}")
    columns = "(seq_id bigint, user_id text, token text, locale text, tz text)"
    await patient.sql(f"CREATE TABLE {TABLE} {columns} PARTITION BY RANGE (seq_id)")
    await patient.heal(ONLY_TABLES, ONLY_TABLES)


async def test_a_login_that_is_refused_and_a_table_that_is_closed(patient: Patient) -> None:
    role, url = f"reader_{secrets.token_hex(4)}", patient.environment[AUDIENCE]
    parts = urlsplit(url)
    as_reader = parts._replace(netloc=f"{role}:s3cret-word@{parts.hostname}:{parts.port}").geturl()
    patient.environment[AUDIENCE] = as_reader
    [ill] = await patient.these_ills(POSTGRESQL)
    assert role in ill.sentence
    assert "s3cret-word" not in str(ill)

    patient.environment[AUDIENCE] = url
    await patient.sql(f"CREATE ROLE {role} LOGIN")
    patient.environment[AUDIENCE] = as_reader
    try:
        [ill] = await patient.heal(TABLES)
        assert "GRANT SELECT" in ill.remedy
    finally:
        patient.environment[AUDIENCE] = url
        await patient.sql(f"DROP OWNED BY {role}")
        await patient.sql(f"DROP ROLE {role}")


async def test_a_database_that_is_missing(patient: Patient) -> None:
    url = patient.environment[AUDIENCE]
    patient.environment[AUDIENCE] = f"{url}_new"
    [ill] = await patient.these_ills(POSTGRESQL)
    try:
        await patient.take(ill.remedy)
        await patient.these_ills(ONLY_TABLES)
    finally:
        patient.environment[AUDIENCE] = url
        await patient.sql(f'DROP DATABASE "{urlsplit(url).path[1:]}_new" WITH (FORCE)')


async def test_a_bucket_that_is_missing_and_a_folder_in_its_place(patient: Patient, tmp_path: Path) -> None:
    patient.environment["CARILLON_BLOBS_URL"] += "-new"
    await patient.heal((Level.FAULT, "Files", "access"))
    folder = tmp_path / "files" / "deeper"
    patient.environment["CARILLON_BLOBS_URL"] = folder.as_uri()
    await patient.these_ills()
    assert not folder.exists()
    (tmp_path / "files").write_text("a file, where the folder should be")
    await patient.these_ills((Level.FAULT, "Files", "access"))


async def test_a_mail_server_that_refuses_the_login_and_one_that_is_away(patient: Patient) -> None:
    async with smtp(login=True, auth_require_tls=False) as sink:
        assert isinstance(sink, SmtpSink)
        right = f"{sink.url}?tls=never"
        patient.environment["CARILLON_MAIL_URL"] = right.replace(LOGIN, "ana%40example.com:wr0ng-word")
        [ill] = await patient.these_ills((Level.FAULT, "Mail", "login"))
        assert "wr0ng-word" not in str(ill)
        patient.environment["CARILLON_MAIL_URL"] = right
        await patient.these_ills()
        assert sink.envelopes == []
    [ill] = await patient.these_ills((Level.FAULT, "Mail", "login"))
    assert ill.sentence.endswith("connection refused")


async def test_proxies_that_are_open_to_all(patient: Patient) -> None:
    patient.environment["CARILLON_API_TRUSTED_PROXIES"] = "0.0.0.0/0"
    [ill] = await patient.these_ills((Level.FAULT, "Deployment", "proxies"))
    await patient.take(ill.remedy, the_addresses_of_your_proxy="10.1.2.3/32")
    await patient.these_ills()


async def test_secrets_that_no_key_opens(patient: Patient) -> None:
    first, second = fresh_key(), fresh_key()
    await patient.store.credentials.add(credential(KeyRing([first])))
    sealed, _ = seal_secret(KeyRing([first]), subscription_id("token:n", "orders"))
    await add(patient.store, "orders", "orders", secrets=(sealed,))
    patient.environment["CARILLON_PROVIDERS_CLOCK_MS"] = "1000"
    patient.environment.pop(KEYS, None)
    [ill] = await patient.these_ills((Level.FAULT, "Messages", "keys"))
    await patient.take(ill.remedy, the_key_that_they_were_sealed_under=first)
    await patient.these_ills()
    patient.environment[KEYS] = f"{second},{first}"
    await patient.these_ills((Level.WARNING, "Messages", "keys"))
    patient.environment[KEYS] = second
    [ill] = await patient.these_ills((Level.FAULT, "Messages", "keys"))
    assert "of post, orders of token:n: put its key back" in ill.sentence


class LongWay(SilencableProxy):
    """A way on which each packet takes 20 ms."""

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                await asyncio.sleep(0.02)
                sink.write(data)
                await sink.drain()
            sink.close()


@pytest.mark.alone
async def test_a_database_that_is_far_away(patient: Patient) -> None:
    key = fresh_key()
    await patient.store.credentials.add(credential(KeyRing([key])))
    patient.environment[KEYS] = key
    url = urlsplit(patient.environment["CARILLON_STORE_URL"])
    assert url.hostname is not None
    assert url.port is not None
    proxy = LongWay(url.hostname, url.port)
    async with proxy.running():
        patient.environment["CARILLON_STORE_URL"] = through_port(url.geturl(), proxy.port)
        [ill] = await patient.these_ills((Level.WARNING, "Messages", "time"))
        assert "providers.clock_ms is 5" in ill.sentence
        await patient.take(ill.remedy)
        assert int(patient.environment["CARILLON_PROVIDERS_CLOCK_MS"]) > 40
        await patient.these_ills()
