"""The sign-in that docs/security.md shows: its files are valid, fit each other, and leave no way around the proxy."""

import re
import shutil
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from services.api.http.guards import guard_rules
from services.api.http.identity import Proxies
from services.commands.doctor.others import judge_proxies
from services.commands.doctor.questions import Level
from shared.runtime.configuration import load
from shared.runtime.settings import ApiSettings
from tests.deploy import validity
from tests.deploy.manifests import K8S, ROOT, Object, pod
from tests.deploy.rendering import render
from tests.deploy.test_kustomize import of_kind

PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")


def block(name: str) -> str:
    found = re.search(rf"<!-- sign-in: {name} -->\n```\w*\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None, name
    return found[1]


PROXY = tomllib.loads(block("proxy"))
PROXY_PORT = urlsplit(f"//{PROXY['http_address']}").port


def api_settings() -> ApiSettings:
    return load(dict(line.split("=", 1) for line in block("settings").splitlines())).api


def test_the_api_believes_the_loopback_alone() -> None:
    api = api_settings()
    proxies = Proxies(api.trusted_proxies, secret=api.proxy_secret)
    assert proxies.trust("127.0.0.1")
    assert not any(proxies.trust(other) for other in ("127.0.0.2", "10.0.0.1", "::1", "192.0.2.1", None))
    assert [opinion.level for opinion in judge_proxies(api)] == [Level.OK]


def test_the_api_answers_to_the_proxys_callers_and_to_services() -> None:
    hosts = guard_rules(api_settings()).hosts
    assert hosts == frozenset({urlsplit(PROXY["redirect_url"]).hostname, "api.carillon"})


def test_the_proxy_leads_to_the_api_and_drops_what_clients_say_of_themselves() -> None:
    api = api_settings()
    assert PROXY["upstreams"] == [f"http://127.0.0.1:{api.port}/"]
    assert PROXY["redirect_url"] == f"{api.public_url}/oauth2/callback"
    assert (PROXY["pass_user_headers"], PROXY["skip_auth_strip_headers"], PROXY["cookie_secure"]) == (True, True, True)
    assert PROXY.keys().isdisjoint({"reverse_proxy", "skip_auth_routes", "trusted_ips", "ping_user_agent"})


@pytest.fixture(scope="module")
def objects(kustomize: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Object]:
    """The overlay for production with what the page adds."""
    tree = shutil.copytree(K8S, tmp_path_factory.mktemp("sign-in") / "k8s")
    folder = tree / "overlays" / "own"
    folder.mkdir()
    overlay = yaml.safe_load(block("overlay"))
    overlay["resources"].append("../production")
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay), "utf-8")
    (folder / "sign-in.yaml").write_text(block("objects"), "utf-8")
    (folder / "oauth2-proxy.cfg").write_text(block("proxy"), "utf-8")
    return render([str(kustomize), "build"], folder)


def only(objects: list[Object], kind: str, name: str) -> Object:
    (found,) = [each for each in of_kind(objects, kind) if each["metadata"]["name"] == name]
    return found


def test_the_proxy_stands_beside_the_api_with_its_configuration(objects: list[Object]) -> None:
    api = only(objects, "Deployment", "api")
    validity.check(api)
    _, proxy = pod(api)["containers"]
    [argument] = proxy["args"]
    [mount] = proxy["volumeMounts"]
    [volume] = [volume for volume in pod(api)["volumes"] if volume["name"] == mount["name"]]
    configuration = only(objects, "ConfigMap", volume["configMap"]["name"])["data"]
    assert [f"--config={mount['mountPath']}/{file}" for file in configuration] == [argument]
    assert tomllib.loads(configuration["oauth2-proxy.cfg"]) == PROXY


def test_the_ingress_reaches_the_proxy_and_services_the_api(objects: list[Object]) -> None:
    service, policy = only(objects, "Service", "sign-in"), only(objects, "NetworkPolicy", "api-of-services")
    labels = only(objects, "Deployment", "api")["spec"]["template"]["metadata"]["labels"]
    for found, selector in (
        (service, service["spec"]["selector"]),
        (policy, policy["spec"]["podSelector"]["matchLabels"]),
    ):
        validity.check(found)
        assert selector == labels
    [port] = [
        port["containerPort"]
        for port in pod(only(objects, "Deployment", "api"))["containers"][1]["ports"]
        if port["name"] == service["spec"]["ports"][0]["targetPort"]
    ]
    [opened] = only(objects, "NetworkPolicy", "api")["spec"]["ingress"]
    assert ([each["port"] for each in opened["ports"]], port) == ([PROXY_PORT], PROXY_PORT)
    assert policy["spec"]["ingress"][0]["ports"] == [{"port": api_settings().port}]
