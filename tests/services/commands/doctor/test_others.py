"""What the doctor finds of files, mail and the deployment."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from services.commands.doctor.deployment import judge_logins, judge_processes, judge_proxies
from services.commands.doctor.findings import Finding, Level
from services.commands.doctor.secrets import Secrets
from shared.domain.console.processes import RunningProcess
from shared.runtime.configuration import load
from shared.runtime.settings import ApiSettings, Settings
from tests.mail.sinks import LOGIN, SmtpSink, smtp
from tests.services.commands.doctor.patient import Patient


@pytest.mark.native
async def test_a_bucket_that_is_missing(patient: Patient) -> None:
    patient.environment["CARILLON_BLOBS_URL"] += "-new"
    await patient.heal((Level.FAULT, "S3", "bucket"))


@pytest.mark.native
async def test_a_folder_in_the_place_of_a_bucket(patient: Patient, tmp_path: Path) -> None:
    folder = tmp_path / "files" / "deeper"
    patient.environment["CARILLON_BLOBS_URL"] = folder.as_uri()
    await patient.these_ills()
    assert not folder.exists()
    (tmp_path / "files").write_text("a file, where the folder should be")
    await patient.these_ills((Level.FAULT, "Folder of files", "folder"))


@pytest.mark.native
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
    patient.environment["CARILLON_MAIL_URL"] = right
    await patient.these_ills((Level.FAULT, "Mail", "address"))


@pytest.mark.native
async def test_a_deployment_that_is_open(patient: Patient) -> None:
    del patient.environment["CARILLON_API_FIRST_ADMIN"]
    patient.environment["CARILLON_API_HOST"] = "0.0.0.0"
    patient.environment["CARILLON_API_TRUSTED_PROXIES"] = "0.0.0.0/0"
    proxies, hosts, admin = await patient.these_ills(
        (Level.FAULT, "Deployment", "proxies"),
        (Level.WARNING, "Deployment", "hosts"),
        (Level.WARNING, "Deployment", "first admin"),
    )
    await patient.take(proxies.remedy, the_addresses_of_your_proxy="10.1.2.3/32")
    await patient.take(hosts.remedy, the_names_that_callers_use="carillon.example.com")
    await patient.take(admin.remedy.replace("<your e-mail address>", "ana@example.com"))
    await patient.these_ills()


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
def test_whom_proxies_let_in(networks: tuple[str, ...], secret: str, level: Level) -> None:
    [opinion] = judge_proxies(ApiSettings(trusted_proxies=networks, proxy_secret=secret))
    assert opinion.level is level


@pytest.mark.parametrize(
    ("setting", "url", "remedy"),
    [
        ("broker_url", "amqp://guest:guest@mq.example.com/carillon", "rabbitmqctl change_password guest"),
        ("audience_url", "postgresql://carillon:carillon@db.example.com/push", ""),
    ],
)
def test_passwords_that_everybody_knows_are_faults_off_this_machine(setting: str, url: str, remedy: str) -> None:
    here = {f"CARILLON_{setting.upper()}": re.sub(r"\w+\.example\.com", "[::1]", url)}
    assert [opinion.level for opinion in judge_logins(load(here))] == [Level.OK]
    [opinion] = judge_logins(load({f"CARILLON_{setting.upper()}": url}))
    assert opinion.level is Level.FAULT
    assert opinion.remedy.startswith(remedy)


NOW = datetime(2027, 1, 1, tzinfo=UTC)


def process(role: str, *, silence: int = 0, version: str = "1", digest: str = "same") -> RunningProcess:
    seen_at = NOW - timedelta(seconds=silence)
    return RunningProcess(
        id=f"here/{role}", roles=(role,), host="here", version=version, started_at=seen_at, seen_at=seen_at,
        phase="serving", settings_digest=digest,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("known", "said", "remedy"),
    [
        ([process("api"), process("worker")], "2 are alive", ""),
        ([process("api")], "no worker is alive", "carillon worker"),
        ([process("api"), process("worker"), process("worker", silence=30)], "cut off or dead: here/worker", ""),
        ([process("api"), process("worker"), process("worker", silence=300)], "2 are alive", ""),
        ([process("api", version="2"), process("worker")], "2 different versions on here", ""),
        ([process("api", digest="other"), process("worker")], "2 different settings on here", ""),
    ],
)
def test_processes(known: list[RunningProcess], said: str, remedy: str) -> None:
    [opinion] = judge_processes(known, NOW, ["api", "worker"])
    assert said in opinion.sentence
    assert opinion.remedy == remedy


def test_no_secret_is_ever_shown() -> None:
    settings = Settings()
    settings = replace(
        settings,
        store=replace(settings.store, url="mongodb://ana:mongo%2Fword@db/carillon"),
        blobs=replace(settings.blobs, access_key="access", secret_key="s3-secret-key"),
        api=replace(settings.api, proxy_secret="a-proxy-secret-word"),
        providers=replace(settings.providers, secret_keys="first-key=, second-key="),
    )
    told = "mongo/word mongo%2Fword s3-secret-key a-proxy-secret-word amqp://guest:hidden@mq"
    masked = Secrets(settings).mask(Finding(Level.FAULT, "x", "y", told, told))
    assert masked.sentence == masked.remedy == "*** *** *** *** amqp://guest:***@mq"
    keys = Secrets(settings).mask(Finding(Level.FAULT, "x", "y", "first-key= second-key=", ""))
    assert keys.sentence == "*** ***"
