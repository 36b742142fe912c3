"""The manifests are valid, agree with each other and with the program."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from shared.runtime.settings import ApiSettings, ShutdownSettings
from tests.deploy.manifests import (
    BASE,
    EXAMPLES,
    K8S,
    POLICIES,
    SERVICES,
    Object,
    image_settings,
    instructions,
    kustomization,
    manifests,
    name,
    pod,
    project,
)

WORKLOADS = manifests("Deployment", "Job")
DEPLOYMENTS = manifests("Deployment")
PROBES = {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
VERSIONS = ("1.29", kubernetes_validate.latest_version())


def container(workload: Object) -> Object:
    (only,) = pod(workload)["containers"]
    return dict(only)


def ports(workload: Object) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container(workload).get("ports", [])}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", manifests(), ids=name)
def test_every_manifest_is_valid(manifest: Object, version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("folder", [BASE, POLICIES])
def test_a_kustomization_lists_every_file(folder: Path) -> None:
    there = {path.name for path in folder.iterdir()} - {"kustomization.yaml"}
    assert sorted(kustomization(folder)["resources"]) == sorted(there)


def test_the_folder_itself_is_the_base() -> None:
    assert kustomization(K8S)["resources"] == [BASE.name]
    assert {path.name for path in K8S.glob("*.yaml")} == {"kustomization.yaml", *EXAMPLES}


def test_production_is_the_base_with_the_network_policies() -> None:
    production = K8S / "overlays" / "production"
    overlay = kustomization(production)
    assert [(production / path).resolve() for path in overlay["resources"]] == [BASE]
    assert [(production / path).resolve() for path in overlay["components"]] == [POLICIES]
    assert (kustomization()["kind"], kustomization(POLICIES)["kind"]) == ("Kustomization", "Component")


def allowed_into(workload: Object) -> dict[int, list[Object]]:
    """Who may connect to a workload's pods, by port, as the policies add up."""
    open_to: dict[int, list[Object]] = {}
    for policy in manifests("NetworkPolicy"):
        if f"{workload['kind']}/{workload['metadata']['name']}" in selected(
            policy["spec"]["podSelector"].get("matchLabels", {})
        ):
            for rule in policy["spec"].get("ingress", []):
                for port in rule["ports"]:
                    open_to.setdefault(port["port"], []).extend(rule["from"])
    return open_to


def test_nobody_reaches_a_pod_that_no_policy_speaks_of() -> None:
    everything = [policy["spec"] for policy in manifests("NetworkPolicy") if policy["spec"]["podSelector"] == {}]
    assert everything == [{"podSelector": {}, "policyTypes": ["Ingress"]}]
    assert all(policy["spec"]["policyTypes"] == ["Ingress"] for policy in manifests("NetworkPolicy"))


@pytest.mark.parametrize("workload", WORKLOADS, ids=name)
def test_only_the_ingress_reaches_the_api_and_only_monitoring_the_metrics(workload: Object) -> None:
    def namespaces(peers: list[Object]) -> list[str]:
        return [peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for peer in peers]

    allowed = {port: namespaces(peers) for port, peers in allowed_into(workload).items()}
    api = workload["metadata"]["name"] == "api"
    assert allowed == ({8080: ["ingress-nginx"]} if api else {}) | {9090: ["monitoring"]}
    assert set(ports(workload).values()) <= allowed.keys()


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl to build it with")
@pytest.mark.parametrize("folder", ["k8s", "k8s/overlays/production"])
def test_kustomize_builds_it(folder: str) -> None:
    built = subprocess.run(["kubectl", "kustomize", folder], cwd=K8S.parent, capture_output=True, text=True, check=True)
    objects = list(yaml.safe_load_all(built.stdout))
    policies = [each for each in objects if each["kind"] == "NetworkPolicy"]
    assert len(policies) == (len(manifests("NetworkPolicy")) if "production" in folder else 0)
    assert {each["metadata"]["namespace"] for each in objects if each["kind"] != "Namespace"} == {"carillon"}


def test_nobody_is_an_admin_unless_an_operator_says_so() -> None:
    assert [given["CARILLON_API_FIRST_ADMIN"] for given in settings()] == [ApiSettings().first_admin] == [""]


def test_no_two_manifests_share_a_name() -> None:
    names = [name(manifest) for manifest in manifests()]
    assert len(names) == len(set(names))


def test_there_is_a_deployment_for_each_service() -> None:
    assert {manifest["metadata"]["name"] for manifest in DEPLOYMENTS} == set(SERVICES)
    assert all(manifest["spec"]["replicas"] >= 2 for manifest in DEPLOYMENTS)


@pytest.mark.parametrize("workload", WORKLOADS, ids=name)
def test_a_workload_runs_the_image_of_this_version_in_its_own_role(workload: Object) -> None:
    tags = {image["name"]: image["newTag"] for image in kustomization()["images"]}
    assert tags == {"carillon": project()["version"]}
    assert container(workload)["image"] == "carillon"
    assert container(workload)["args"] == [workload["metadata"]["name"]]
    assert "command" not in container(workload), "the image's entry point is the command"


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=name)
def test_probes_ask_pages_that_exist_on_a_port_that_exists(deployment: Object) -> None:
    asked = {probe: container(deployment)[probe]["httpGet"]["path"] for probe in PROBES}
    assert asked == PROBES
    assert {container(deployment)[probe]["httpGet"]["port"] for probe in PROBES} <= ports(deployment).keys()


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=name)
def test_metrics_are_scraped_from_the_health_port(deployment: Object) -> None:
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(ports(deployment)["health"]),
        "prometheus.io/path": "/metrics",
    }


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=name)
def test_ports_are_those_that_the_program_listens_on(deployment: Object) -> None:
    exposed = {int(port) for port in instructions("EXPOSE")[0].split()}
    wanted = {"http": 8080, "health": 9090} if deployment["metadata"]["name"] == "api" else {"health": 9090}
    assert ports(deployment) == wanted
    assert set(wanted.values()) <= exposed


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=name)
def test_selectors_match_the_labels_of_the_pods(deployment: Object) -> None:
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    for constraint in pod(deployment)["topologySpreadConstraints"]:
        assert constraint["labelSelector"]["matchLabels"] == labels
    assert labels["app.kubernetes.io/component"] == deployment["metadata"]["name"]


def selected(selector: dict[str, str]) -> list[str]:
    """The workloads, deployments or not, whose pods a selector takes."""
    return [
        name(workload)
        for workload in WORKLOADS
        if selector.items() <= workload["spec"]["template"]["metadata"]["labels"].items()
    ]


def test_each_deployment_has_a_disruption_budget_of_its_own() -> None:
    budgets = [selected(budget["spec"]["selector"]["matchLabels"]) for budget in manifests("PodDisruptionBudget")]
    assert sorted(budgets) == [[f"Deployment/{service}"] for service in sorted(SERVICES)]
    assert all(budget["spec"]["maxUnavailable"] == 1 for budget in manifests("PodDisruptionBudget"))


def test_the_service_leads_to_the_api() -> None:
    (service,) = manifests("Service")
    assert selected(service["spec"]["selector"]) == ["Deployment/api"]
    (api,) = [manifest for manifest in DEPLOYMENTS if manifest["metadata"]["name"] == "api"]
    assert {port["targetPort"] for port in service["spec"]["ports"]} == {"http"} <= ports(api).keys()


@pytest.mark.parametrize("workload", WORKLOADS, ids=name)
def test_a_pod_has_no_rights_to_spare(workload: Object) -> None:
    spec, only = pod(workload), container(workload)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert f"{spec['securityContext']['runAsUser']}:{spec['securityContext']['runAsGroup']}" == instructions("USER")[-1]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"cpu", "memory"} <= only["resources"]["requests"].keys()
    assert "memory" in only["resources"]["limits"]


@pytest.mark.parametrize("workload", WORKLOADS, ids=name)
def test_a_pod_refers_to_things_that_exist(workload: Object) -> None:
    def named(kind: str) -> set[str]:
        return {manifest["metadata"]["name"] for manifest in manifests(kind)}

    sources: list[dict[str, Any]] = container(workload)["envFrom"]
    assert {source["configMapRef"]["name"] for source in sources if "configMapRef" in source} == named("ConfigMap")
    assert {source["secretRef"]["name"] for source in sources if "secretRef" in source} == named("Secret")
    assert {pod(workload)["serviceAccountName"]} == named("ServiceAccount")
    mounted = {mount["name"] for mount in container(workload)["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod(workload)["volumes"]}


@pytest.mark.parametrize("workload", WORKLOADS, ids=name)
def test_kubernetes_adds_no_variables_that_the_program_would_refuse(workload: Object) -> None:
    assert pod(workload)["enableServiceLinks"] is False
    assert "env" not in container(workload)


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=name)
def test_a_pod_is_given_the_time_that_it_takes_to_drain(deployment: Object) -> None:
    shutdown = ShutdownSettings()
    given = {key for source in [image_settings(), *settings()] for key in source}
    assert not any(key.startswith("CARILLON_SHUTDOWN_") for key in given), "then compare with that"
    needed = shutdown.readiness_seconds + shutdown.grace_seconds
    assert pod(deployment)["terminationGracePeriodSeconds"] >= needed + 5


def settings() -> list[dict[str, str]]:
    return [manifest["data"] for manifest in manifests("ConfigMap")]
