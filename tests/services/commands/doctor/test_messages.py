"""What the doctor finds of messages: each ill is made on purpose, found, and healed by what he says."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace

from services.commands.doctor.findings import Level
from services.commands.doctor.messages import judge_guards, judge_secrets, judge_time
from shared.domain.console.processes import RunningProcess
from shared.domain.messages.credentials import Credential, CredentialStatus
from shared.secrets import KeyRing, fresh_key
from tests.broker.proxy import SilencableProxy
from tests.services.commands.doctor.patient import Patient
from tests.stack.mongodb import through_port

NOW = datetime(2027, 1, 1, tzinfo=UTC)
KEYS = "CARILLON_PROVIDERS_SECRET_KEYS"


def credential(keys: KeyRing | None = None, name: str = "post") -> Credential:
    sealed = "" if keys is None else keys.seal({"signingSecret": "whsec_x"}, name)
    return Credential(
        id=name, app_id="app", name=name, kind="http", fields={}, secret=sealed, rate=10, max_in_flight=20,
        test_recipient="ana@example.com", created_by="ana", created_at=NOW, updated_at=NOW,
    )  # fmt: skip


@pytest.mark.native
async def test_secrets_that_no_key_opens(patient: Patient) -> None:
    first, second = fresh_key(), fresh_key()
    await patient.store.credentials.add(credential(KeyRing([first])))
    patient.environment["CARILLON_PROVIDERS_CLOCK_MS"] = "1000"
    patient.environment.pop(KEYS, None)
    [ill] = await patient.these_ills((Level.FAULT, "Messages", "secrets"))
    assert "1 credentials have secrets" in ill.sentence
    await patient.take(ill.remedy, the_key_that_they_were_sealed_under=first)
    await patient.these_ills()
    patient.environment[KEYS] = second
    [ill] = await patient.these_ills((Level.FAULT, "Messages", "secrets"))
    assert ill.remedy == "carillon credentials secret post --app <its app> @<a file with the secret>"
    patient.environment[KEYS] = f"{second},{first}"
    [ill] = await patient.these_ills((Level.WARNING, "Messages", "secrets"))
    assert ill.remedy == "carillon credentials reencrypt"
    await patient.store.credentials.remove("post")
    await patient.store.credentials.add(credential(KeyRing([second])))
    await patient.these_ills()


@pytest.mark.native
async def test_a_credential_that_its_provider_refuses(patient: Patient) -> None:
    patient.environment["CARILLON_PROVIDERS_CLOCK_MS"] = "1000"
    credentials = patient.store.credentials
    await credentials.add(credential())
    await patient.these_ills()
    await credentials.move("post", CredentialStatus.REJECTED, why="401 Unauthorized", at=NOW)
    [ill] = await patient.these_ills((Level.WARNING, "Messages", "logins"))
    assert ill.sentence == "the provider refuses post (post): 401 Unauthorized"
    assert ill.remedy == "carillon credentials secret post --app <its app> @<a file with the secret>"
    known = await credentials.get("post")
    assert known is not None
    await credentials.change(known, known.with_secret({}, "", ""))  # as the route behind this command does
    await patient.these_ills()


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
@pytest.mark.native
async def test_a_database_that_is_far_away(patient: Patient) -> None:
    await patient.store.credentials.add(credential())
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


def process(name: str, **guard: int) -> RunningProcess:
    return RunningProcess(
        id=name, roles=("worker",), host=name, version="1", started_at=NOW, seen_at=NOW, phase="serving",
        settings_digest="same", guard=guard,
    )  # fmt: skip


def test_processes_that_differ_in_the_guard() -> None:
    known = [process("a", late_ms=8, clock_ms=5), process("b", late_ms=20, clock_ms=5), process("of 0.3")]
    [opinion] = judge_guards(known, NOW)
    assert opinion.level is Level.FAULT
    assert opinion.sentence == "providers.late_ms differs: 8 on a; 20 on b"
    assert opinion.remedy == "export CARILLON_PROVIDERS_LATE_MS=20"
    healed = [replace(known[0], guard={"late_ms": 20, "clock_ms": 5}), *known[1:]]
    assert [opinion.level for opinion in judge_guards(healed, NOW)] == [Level.OK]
    gone = [known[0], replace(known[1], seen_at=datetime(2026, 12, 31, tzinfo=UTC))]
    assert [opinion.level for opinion in judge_guards(gone, NOW)] == [Level.OK]


@pytest.mark.parametrize(("bound_us", "remedy"), [(5_000, ""), (5_001, "export CARILLON_PROVIDERS_CLOCK_MS=11")])
def test_a_database_whose_time_is_hard_to_tell_from_here(bound_us: int, remedy: str) -> None:
    [opinion] = judge_time(bound_us, allowed_ms=5)
    assert opinion.remedy == remedy
    assert opinion.level is (Level.WARNING if remedy else Level.OK)
    assert [healed.level for healed in judge_time(bound_us, allowed_ms=11)] == [Level.OK]


def test_a_database_whose_time_several_clocks_tell() -> None:
    """Whoever sends would wait for the old clock's grants to end, again and again."""
    [opinion] = judge_time(100, allowed_ms=5, clocks=2)
    assert opinion.level is Level.FAULT
    assert opinion.remedy.startswith("export CARILLON_STORE_URL=")


def test_what_was_moved_from_another_credential_does_not_open() -> None:
    keys = KeyRing([fresh_key()])
    [opinion] = judge_secrets([replace(credential(keys, "one"), id="two")], keys)
    assert opinion.level is Level.FAULT
