"""The manifests of the base agree with each other and with the program."""

from typing import Any

import pytest

from shared.runtime.settings import ApiSettings, ShutdownSettings
from tests.deploy.manifests import (
    BASE,
    EXAMPLES,
    K8S,
    SERVICES,
    SETTINGS,
    Object,
    image_settings,
    instructions,
    kustomization,
    manifests,
    name,
    pod,
    project,
    variables,
)
from tests.e2e.house import command_of

WORKLOADS = manifests("Deployment", "Job")
DEPLOYMENTS = manifests("Deployment")
PROBES = {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}


def container(workload: Object) -> Object:
    (only,) = pod(workload)["containers"]
    return dict(only)


def ports(workload: Object) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container(workload).get("ports", [])}


def test_the_folder_itself_is_the_base() -> None:
    assert kustomization(K8S)["resources"] == [BASE.name]
    assert {path.name for path in K8S.glob("*.yaml")} == {"kustomization.yaml", *EXAMPLES}


def test_nobody_is_an_admin_unless_an_operator_says_so() -> None:
    assert variables(SETTINGS)["CARILLON_API_FIRST_ADMIN"] == ApiSettings().first_admin == ""


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
    assert container(workload)["args"] == command_of(workload["metadata"]["name"])
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
    made = {generator["name"] for generator in kustomization()["configMapGenerator"]}
    assert {source["configMapRef"]["name"] for source in sources if "configMapRef" in source} == made
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
    given = image_settings() | variables(SETTINGS)
    assert not any(key.startswith("CARILLON_SHUTDOWN_") for key in given), "then compare with that"
    needed = shutdown.readiness_seconds + shutdown.grace_seconds
    assert pod(deployment)["terminationGracePeriodSeconds"] >= needed + 5
