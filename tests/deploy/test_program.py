"""What is deployed exists in the program: its commands, its settings, the files that the image copies."""

import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from urllib.parse import urlsplit

import pytest
from click import Context

from shared.runtime.configuration import PREFIX, Misconfigured, load
from shared.runtime.health import ProcessHealth, pages
from shared.runtime.settings import Settings
from tests.deploy.manifests import (
    K8S,
    ROOT,
    SERVICES,
    SETTINGS,
    compose,
    filled_in,
    image_settings,
    instructions,
    interpolated,
    project,
    variables,
)
from tests.e2e.house import command_of


def of_compose() -> dict[str, str]:
    environment = compose()["services"]["api"]["environment"]
    return image_settings() | {key: interpolated(value) for key, value in environment.items()}


def of_kubernetes() -> dict[str, str]:
    return image_settings() | variables(SETTINGS) | filled_in(K8S / "secret.example.yaml")


PLACES = {"compose": of_compose(), "kubernetes": of_kubernetes()}


def test_every_command_exists() -> None:
    (entry,) = project()["scripts"].values()
    command = EntryPoint("carillon", entry, "console_scripts").load()
    assert {command_of(service)[0] for service in (*SERVICES, "init")} <= {*command.list_commands(Context(command))}


def test_the_pages_that_are_probed_exist() -> None:
    assert {"/livez", "/readyz", "/metrics"} <= set(pages(ProcessHealth())._pages)


@pytest.mark.parametrize("place", PLACES)
def test_every_setting_exists_and_has_a_value_that_is_allowed(place: str) -> None:
    assert all(key.startswith(PREFIX) for key in PLACES[place])
    load(PLACES[place])


def test_a_setting_that_does_not_exist_would_be_noticed() -> None:
    with pytest.raises(Misconfigured, match="CARILLON_STORE_URI"):
        load(of_compose() | {"CARILLON_STORE_URI": "mongodb://mongo/carillon"})


@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_left_to_be_looked_for_in_the_container_itself(place: str) -> None:
    settings = load(PLACES[place])
    for name, section in settings.sections().items():
        for field in section.__struct_fields__:
            if field == "url" or field.endswith("_url"):
                assert urlsplit(getattr(section, field).split(",")[0]).hostname != "127.0.0.1", f"{name}.{field}"


@pytest.mark.parametrize("place", PLACES)
def test_the_ports_are_open_to_other_hosts_and_those_of_the_image(place: str) -> None:
    settings = load(PLACES[place])
    assert (settings.api.host, settings.health.host) == ("0.0.0.0", "0.0.0.0")
    assert {settings.api.port, settings.health.port} == {int(port) for port in instructions("EXPOSE")[0].split()}
    assert (settings.api.port, settings.health.port) == (Settings().api.port, Settings().health.port)


def test_the_image_starts_the_command_as_a_numbered_user() -> None:
    assert json.loads(instructions("ENTRYPOINT")[0]) == list(project()["scripts"])
    assert instructions("USER") == ["10001:10001"]


def test_the_image_installs_only_what_is_locked() -> None:
    installs = [step for run in instructions("RUN") for step in run.split("&&") if "/pip install" in step]
    assert installs
    assert all("--require-hashes" in step or "--no-index" in step for step in installs)


def test_what_the_image_copies_is_there_and_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    sources = [word for copy in instructions("COPY") if "--from" not in copy for word in copy.split()[:-1]]
    assert sources
    assert sorted(sources) == sorted(line[1:] for line in ignored if line.startswith("!"))
    assert all((ROOT / source).exists() for source in sources)


@pytest.mark.slow  # an interpreter that imports all there is
def test_the_program_needs_nothing_of_what_the_image_leaves_out() -> None:
    (line,) = [rest for rest in instructions("RUN") if "uninstall" in rest]
    left_out = line.rpartition("uninstall --yes")[2].split()
    assert {"polyfactory", "faker"} <= set(left_out)
    program = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {left_out!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
import services.cli, services.wiring.api, services.wiring.workers, services.wiring.schedulers, services.wiring.process
from services.feedback import fan_out, listener
from services.api.http.documentation import DocumentationResource
DocumentationResource([]).handlers()
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=50)
