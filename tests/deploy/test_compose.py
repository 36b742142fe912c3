"""The compose file is well formed and agrees with the program."""

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
import pytest
from msgspec import Meta, Struct

from shared.runtime.settings import ShutdownSettings
from tests.deploy.manifests import SERVICES, Object, compose, instructions, interpolated
from tests.e2e.house import command_of

SERVERS = {
    "mongo": "mongo:8.0",
    "rabbitmq": "rabbitmq:4-management",
    "postgres": "postgres:17",
    "kafka": "apache/kafka:4.1.0",
    "s3": "chrislusf/seaweedfs:4.20",
}
PUBLIC = "CARILLON_BLOBS_PUBLIC_ENDPOINT_URL"
ELSEWHERE = {"CARILLON_BLOBS_URL", PUBLIC, "CARILLON_API_PUBLIC_URL"}
"""A bucket, and addresses of this machine."""

OURS = (*SERVICES, "init")
Seconds = Annotated[str, Meta(pattern="^[0-9]+s$")]


class Dependency(Struct, forbid_unknown_fields=True):
    condition: Literal["service_healthy", "service_completed_successfully"]


class Healthcheck(Struct, forbid_unknown_fields=True):
    disable: bool = False
    test: list[str] = []
    interval: Seconds = "30s"
    timeout: Seconds = "30s"
    start_period: Seconds = "0s"
    retries: int = 3


class Service(Struct, forbid_unknown_fields=True):
    """As much of the compose specification as the file uses, and less freely: words are lists, ports are local."""

    image: str
    healthcheck: Healthcheck
    build: str = ""
    command: list[str] = []
    environment: dict[str, str | int] = {}
    read_only: bool = False
    tmpfs: list[str] = []
    cap_drop: list[str] = []
    security_opt: list[str] = []
    hostname: str = ""
    restart: Literal["no", "unless-stopped"] = "no"
    stop_grace_period: Seconds = "10s"
    ports: list[Annotated[str, Meta(pattern=r"^127\.0\.0\.1:[0-9]+:[0-9]+$")]] = []
    volumes: list[Annotated[str, Meta(pattern="^[a-z0-9]+:/[a-z/]+$")]] = []
    depends_on: dict[str, Dependency] = {}


class File(Struct, forbid_unknown_fields=True):
    name: str
    services: dict[str, Service]
    networks: dict[str, Any]
    volumes: dict[str, None]


def service(name: str) -> Object:
    return dict(compose()["services"][name])


def test_the_file_is_well_formed() -> None:
    file = msgspec.convert({key: value for key, value in compose().items() if not key.startswith("x-")}, File)
    assert all(needed in file.services for service in file.services.values() for needed in service.depends_on)


def test_it_holds_our_services_and_the_servers_that_they_need() -> None:
    assert compose()["services"].keys() == {*OURS, *SERVERS}


@pytest.mark.parametrize("name", OURS)
def test_ours_run_the_image_that_is_built_here_each_in_its_own_role(name: str) -> None:
    ours = service(name)
    assert (ours["image"], ours["build"], ours["command"]) == ("carillon:latest", ".", command_of(name))
    assert ours["read_only"] is True
    assert ours["cap_drop"] == ["ALL"]


@pytest.mark.parametrize(("name", "image"), SERVERS.items())
def test_servers_are_pinned_and_keep_their_data(name: str, image: str) -> None:
    assert service(name)["image"] == image
    assert [volume.split(":")[0] for volume in service(name)["volumes"]] == [name]
    assert name in compose()["volumes"]


def test_everything_starts_after_what_it_needs_is_healthy() -> None:
    for name in SERVICES:
        assert service(name)["depends_on"] == {"init": {"condition": "service_completed_successfully"}}
    needed = service("init")["depends_on"]
    assert needed == {name: {"condition": "service_healthy"} for name in SERVERS}
    for name in (*SERVICES, *needed):
        assert "test" in service(name)["healthcheck"]


def test_what_the_settings_name_are_services_of_this_file() -> None:
    urls = [
        urlsplit(interpolated(value))
        for key, value in service("api")["environment"].items()
        if key.endswith("_URL") and key not in ELSEWHERE
    ]
    assert {url.hostname for url in urls} == {"mongo", "rabbitmq", "postgres", "kafka", "s3"}


def test_files_can_be_uploaded_from_this_machine() -> None:
    inside, outside = (urlsplit(service("api")["environment"][key]) for key in ("CARILLON_BLOBS_ENDPOINT_URL", PUBLIC))
    assert outside.hostname == "localhost"
    assert service(str(inside.hostname))["ports"] == [f"127.0.0.1:{outside.port}:{inside.port}"]


def test_the_settings_are_the_same_for_all() -> None:
    assert all(service(name)["environment"] == service("api")["environment"] for name in OURS)


def test_credentials_and_addresses_are_those_of_the_servers() -> None:
    given = {key: urlsplit(value) for key, value in service("api")["environment"].items() if key.endswith("_URL")}
    rabbit, postgres = service("rabbitmq")["environment"], service("postgres")["environment"]
    for key in ("CARILLON_BROKER_URL", "CARILLON_BROKER_MANAGEMENT_URL"):
        assert (given[key].username, given[key].password) == tuple(rabbit.values())
    audience = given["CARILLON_AUDIENCE_URL"]
    assert (audience.username, audience.password, audience.path[1:]) == tuple(postgres.values())
    assert (
        f"INSIDE://{given['CARILLON_STREAM_URL'].netloc}"
        in service("kafka")["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    )
    assert given["CARILLON_STORE_URL"].query == f"replicaSet={service('mongo')['command'][2]}"


def test_the_gateway_is_the_proxy_that_is_trusted() -> None:
    (network,) = compose()["networks"]["default"]["ipam"]["config"]
    trusted = service("api")["environment"]["CARILLON_API_TRUSTED_PROXIES"].split(",")
    assert trusted == [f"{network['gateway']}/32", "127.0.0.1/32"], "and programs in the API's own container"


def test_the_api_and_the_management_pages_are_published() -> None:
    assert service("api")["ports"] == ["127.0.0.1:8080:8080"]
    assert service("rabbitmq")["ports"] == ["127.0.0.1:15672:15672"]


@pytest.mark.parametrize("name", SERVICES)
def test_our_health_check_is_that_of_the_image(name: str) -> None:
    check = service(name)["healthcheck"]["test"]
    assert "http://127.0.0.1:9090/readyz" in check[-1]
    assert check[-1] in instructions("HEALTHCHECK")[0]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_given_the_time_that_it_takes_to_drain(name: str) -> None:
    needed = ShutdownSettings().readiness_seconds + ShutdownSettings().grace_seconds
    assert int(service(name)["stop_grace_period"].removesuffix("s")) >= needed + 5
