"""Every process with exactly the variables that the compose file and the overlays give it, and a caller who does one of
each thing.

The addresses of servers are those of the native stack, folders and ports are the test's own, and what an operator has
to fill in is filled in. All else is as the files have it: a setting that they forget is missing here, too.
"""

import secrets
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_string
from email.policy import default
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

import carillon
from services.embedded.processes import free_port
from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from shared.runtime.configuration import load
from tests.deploy.manifests import SERVICES, compose, image_settings, interpolated
from tests.deploy.rendering import COMPONENTS, Combination, Renderings
from tests.deploy.test_kustomize import of_kind, passwords
from tests.drivers.http.receiver import calling, receiving
from tests.e2e.house import House
from tests.providers.accounts import NETWORK, NetworkAccount
from tests.providers.fakes import fake_process
from tests.stack import Endpoints
from tests.stack.certificates import Authority
from tests.tiers import and_rarely
from tests.waiting import SECONDS, until

pytestmark = pytest.mark.native

TLS_FOLDER = "/etc/carillon/tls/"
ADMIN = "admin@example.com"
PLACES = and_rarely("compose", rarely=["laptop", "production"])


def given_at(place: str, renderings: Renderings) -> dict[str, str]:
    """What the processes there are given."""
    if place == "compose":
        return {name: interpolated(value) for name, value in compose()["services"]["api"]["environment"].items()}
    combination = Combination(place, COMPONENTS if place == "production" else ())
    (settings,) = of_kind(renderings[combination], "ConfigMap")
    return dict(settings["data"]) | passwords(combination)


def moved(given: Mapping[str, str], stack: Endpoints, servers: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The same, with the addresses, the folders and the ports of this test."""
    authority = Authority()
    (folder / "ca.crt").write_bytes(authority.pem)
    for name in ("tls.crt", "tls.key"):
        (folder / name).write_bytes(authority.issue("api"))
    (folder / "tls.key").write_bytes((folder / "tls.crt").read_bytes())
    here = {
        name: value.replace("/tmp/", f"{folder}/").replace(TLS_FOLDER, f"{folder}/") for name, value in given.items()
    }
    addresses = {
        **servers,
        "CARILLON_BROKER_MANAGEMENT_URL": stack.rabbit_management_url,
        "CARILLON_STREAM_URL": f"kafka://{stack.kafka_servers}",
        "CARILLON_BLOBS_ENDPOINT_URL": stack.s3_url,
        "CARILLON_BLOBS_PUBLIC_ENDPOINT_URL": stack.s3_url,
        "CARILLON_MAIL_URL": "smtp://127.0.0.1:1",
    }
    # A role of the service account stands for keys of S3 in production.
    of_operators = {"CARILLON_BLOBS_ACCESS_KEY": "any", "CARILLON_BLOBS_SECRET_KEY": "any"}
    if not given["CARILLON_API_FIRST_ADMIN"]:
        here["CARILLON_API_FIRST_ADMIN"] = ADMIN
    of_one_machine = {
        "CARILLON_STREAM_REPLICATION_FACTOR": "1",
        "CARILLON_PROVIDERS_ALLOWED_NETWORKS": "127.0.0.0/8",
        "CARILLON_CALLBACKS_ALLOWED_NETWORKS": "127.0.0.0/8",
        "CARILLON_FEEDBACK_GROUP": f"carillon-{secrets.token_hex(4)}",
        "CARILLON_BUS_LOG_TOPIC": f"bus-{secrets.token_hex(4)}",
        "CARILLON_BUS_LOG_PARTITIONS": "4",
        "CARILLON_BUS_GROUP": f"fanout-{secrets.token_hex(4)}",
        "CARILLON_SHUTDOWN_READINESS_SECONDS": "0",
    }
    return of_operators | here | addresses | of_one_machine


@dataclass
class Deployed:
    """A deployment that runs, and an admin of it."""

    house: House
    admin: httpx.AsyncClient
    trust: ssl.SSLContext
    health: dict[str, int] = field(default_factory=dict)

    @property
    def settings(self) -> Mapping[str, str]:
        return self.house.environment

    async def call(self, method: str, path: str, body: object = None, *, expected: int = 200) -> Any:
        answer = await self.admin.request(method, path, json=body)
        assert answer.status_code == expected, (path, answer.text, self.house.logs())
        return answer.json()

    async def ready(self, role: str) -> bool:
        answer = await self.admin.get(f"http://127.0.0.1:{self.health[role]}/readyz")
        return answer.status_code == 200 and answer.json()["failing"] == {}


@asynccontextmanager
async def deployed(
    place: str, renderings: Renderings, stack: Endpoints, servers: Mapping[str, str], folder: Path
) -> AsyncIterator[Deployed]:
    """`init` has run, and all processes are ready."""
    environment = image_settings() | moved(given_at(place, renderings), stack, servers, folder)
    async with AsyncExitStack() as closing:
        opened = Servers(load(environment), service="test")
        closing.push_async_callback(opened.close)
        house = House(environment, folder, servers["CARILLON_AUDIENCE_URL"], Rooms(opened))
        closing.push_async_callback(house.end)
        init = await house.spawn("init")
        assert await init.gone() == 0, init.log
        port = free_port()
        environment["CARILLON_API_PORT"] = str(port)
        health = {role: free_port() for role in SERVICES}
        started = [await house.spawn(role, CARILLON_HEALTH_PORT=str(health[role])) for role in SERVICES]
        for process in started:
            await process.ready()
        trust = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        scheme = "https" if "CARILLON_API_CERTIFICATE_FILE" in environment else "http"
        headers = {
            "x-forwarded-email": environment["CARILLON_API_FIRST_ADMIN"],
            "x-carillon-proxy-secret": environment.get("CARILLON_API_PROXY_SECRET", ""),
            "host": host_of(environment),
        }
        admin = await closing.enter_async_context(
            httpx.AsyncClient(base_url=f"{scheme}://127.0.0.1:{port}", headers=headers, verify=trust, timeout=SECONDS)
        )
        found = Deployed(house, admin, trust, health)
        for role in SERVICES:
            await until(partial(found.ready, role), f"{role} to be ready")
        yield found


def host_of(environment: Mapping[str, str]) -> str:
    """The name by which callers reach the API there."""
    return urlsplit(environment["CARILLON_API_PUBLIC_URL"]).netloc


@pytest.fixture
def servers(mongo_database: str, rabbit_vhost: str, push_database: str) -> dict[str, str]:
    return {
        "CARILLON_STORE_URL": mongo_database,
        "CARILLON_BROKER_URL": rabbit_vhost,
        "CARILLON_AUDIENCE_URL": push_database,
    }


@pytest.mark.parametrize("place", PLACES)
async def test_a_caller_does_one_of_each_thing(
    place: str, renderings: Renderings, stack: Endpoints, servers: dict[str, str], tmp_path: Path
) -> None:
    async with deployed(place, renderings, stack, servers, tmp_path) as there, fake_process("smtp_fake") as post_office:
        if place != "production":
            seed = await there.house.spawn("seed")
            assert await seed.gone() == 0, seed.log
            await make_sandbox_account(there)
        app = (await there.call("POST", "/apps", {"name": "shop", "bundleId": "com.example.shop"}, expected=201))["id"]
        async with calling() as outgoing:
            account = NETWORK["smtp"](post_office, outgoing, 1.0)
            credential = await make_credential(there, app, "mail", account)
        await post_office.forget()
        path = await upload(there, b"Recipient,Name\nana@example.com,Ana\n")
        await send_mails(there, app, credential, path)
        [mail] = [message_from_string(one.body, policy=default) for one in (await post_office.tell()).arrived]
        assert str(mail["To"]) == "ana@example.com"
        await unsubscribe(there, app, str(mail["List-Unsubscribe"]).strip("<>"))
        await hear_a_signed_callback(there)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["compose", "laptop", "production"])
async def test_a_credential_of_each_kind_is_made(
    place: str, renderings: Renderings, stack: Endpoints, servers: dict[str, str], tmp_path: Path
) -> None:
    async with deployed(place, renderings, stack, servers, tmp_path) as there, calling() as outgoing:
        app = (await there.call("POST", "/apps", {"name": "shop", "bundleId": "com.example.shop"}, expected=201))["id"]
        for kind in NETWORK:
            async with fake_process(NETWORK[kind].fake_module) as fake:
                await make_credential(there, app, kind, NETWORK[kind](fake, outgoing, 1.0))
                assert len((await fake.tell()).arrived) == 1


async def make_credential(there: Deployed, app: str, name: str, account: NetworkAccount) -> str:
    """A credential of the account's kind, whose test message has arrived."""
    await account.have_said("accepted")
    body = {"name": name, "kind": account.kind.name, "fields": dict(account.fields), "secret": dict(account.secret)}
    made = await there.call("POST", f"/apps/{app}/credentials", body | {"testRecipient": account.to}, expected=201)
    return str(made["id"])


async def make_sandbox_account(there: Deployed) -> None:
    [app] = await there.call("GET", "/apps")
    body = {"name": "play", "kind": "sandbox", "testRecipient": "ana@example.com"}
    await there.call("POST", f"/apps/{app['id']}/credentials", body, expected=201)
    assert "ana@example.com" in Path(there.settings["CARILLON_PROVIDERS_SANDBOX_FILE"]).read_text()


async def upload(there: Deployed, content: bytes) -> str:
    """Put a file where the API says; nobody has made its bucket by hand."""
    found = await there.call("GET", "/uploadurl")
    async with httpx.AsyncClient() as stranger:
        answer = await stranger.put(found["url"], content=content)
    assert answer.status_code == 200, answer.text
    return str(found["csvPath"])


async def send_mails(there: Deployed, app: str, credential: str, path: str) -> None:
    """A job over the file, to its end."""
    body = {"subject": "News", "text": "Hi {{name}}, no more: {{unsubscribe_url}}"}
    await there.call("POST", f"/apps/{app}/templates", {"name": "news", "locale": "en", "body": body}, expected=201)
    job = await there.call(
        "POST", f"/apps/{app}/jobs?template=news", {"credential": credential, "csvPath": path}, expected=201
    )

    async def ended() -> bool:
        return bool((await there.call("GET", f"/apps/{app}/jobs/{job['id']}"))["state"] == "completed")

    await until(ended, "the job to complete")


async def unsubscribe(there: Deployed, app: str, link: str) -> None:
    """Use the link in a mail as a mail program does."""
    public = there.settings["CARILLON_API_PUBLIC_URL"]
    assert link.startswith(f"{public}/u/")
    async with httpx.AsyncClient(base_url=there.admin.base_url, verify=there.trust) as stranger:
        answer = await stranger.post(
            link.removeprefix(public),
            content=b"List-Unsubscribe=One-Click",
            headers={"content-type": "application/x-www-form-urlencoded", "host": host_of(there.settings)},
        )
    assert answer.status_code == 200, answer.text
    assert len(await there.call("GET", f"/apps/{app}/suppressions")) == 1


async def hear_a_signed_callback(there: Deployed) -> None:
    """A schedule calls a receiver, which knows by the signature who does."""
    secret = (await there.call("POST", "/signing-secrets", {}, expected=201))["secret"]
    async with receiving() as receiver:
        callback = {"type": "http", "data": {"url": f"{receiver.url}/hook"}}
        await there.call("PUT", "/schedules/hello", {"every": 86_400, "callback": callback}, expected=201)
        await there.call("POST", "/schedules/hello/fire", expected=202)
        await until(lambda: receiver.received, "the callback")
        [received] = receiver.received[:1]
    assert carillon.verify(received.body, dict(received.headers), secret)
