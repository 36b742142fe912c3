"""What KEDA scales: by what, to which targets, and that it asks for things that exist."""

import re
from collections import Counter
from typing import Any

import pytest

from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from services.wiring.workers import build_stages, queues_of
from shared.bus.rules.wake_ups import DELIVER_QUEUE, REPLAY_QUEUE, SLOW_QUEUE
from shared.clock.rules.callbacks import CALL_QUEUE
from shared.console.rules.bulk_actions import BULK_QUEUE
from shared.jobs.rules.jobs import BATCH_QUEUE, FINISH_QUEUE, MAIL_QUEUE, SPLIT_QUEUE
from shared.messages.rules.singles import MESSAGE_QUEUE, SINGLE_QUEUE
from shared.runtime.bus_settings import BusSettings
from shared.runtime.configuration import load
from shared.runtime.metrics import REGISTRY
from shared.runtime.settings import FeedbackSettings
from tests.deploy.manifests import SERVICES, Object
from tests.deploy.rendering import BY_CPU, Combination, Renderings, all_combinations
from tests.deploy.test_kustomize import of_kind, passwords
from tests.deploy.validity import triggers

COMBINATIONS = all_combinations()
SCALED = all_combinations("autoscaling")
SCALED_BY_CPU = all_combinations(BY_CPU)
BATCH_AGE, OCCURRENCE_AGE = "carillon_batch_oldest_queued_seconds", "carillon_oldest_visible_seconds"

# Of each role: the fewest and the most pods, and for each trigger its kind, what it looks at, and the target.
TABLE: dict[str, tuple[int, int, list[tuple[str, str, str]]]] = {
    "worker": (
        2,
        16,
        [
            ("rabbitmq", BATCH_QUEUE, "8"),
            ("rabbitmq", SPLIT_QUEUE, "2"),
            ("rabbitmq", CALL_QUEUE, "200"),
            ("prometheus", f"max({BATCH_AGE})", "30"),
            ("rabbitmq", DELIVER_QUEUE, "200"),
            ("rabbitmq", SLOW_QUEUE, "200"),
            ("rabbitmq", REPLAY_QUEUE, "4"),
            ("rabbitmq", MESSAGE_QUEUE, "100"),
            ("rabbitmq", SINGLE_QUEUE, "200"),
            ("rabbitmq", BULK_QUEUE, "4"),
            ("rabbitmq", FINISH_QUEUE, "20"),
            ("rabbitmq", MAIL_QUEUE, "20"),
            ("cpu", "", "70"),
        ],
    ),
    "scheduler": (2, 8, [("prometheus", f"max({OCCURRENCE_AGE})", "5")]),
    "feedback-answers": (2, 16, [("kafka", FeedbackSettings().group, "50000")]),
    "feedback-bus": (2, BusSettings().log_partitions, [("kafka", BusSettings().group, "50000")]),
    "api": (2, 10, [("cpu", "", "70")]),
}


BEHAVIOR = {
    "scaleDown": {
        "stabilizationWindowSeconds": 300,
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
    }
}


def by_cpu(objects: list[Object]) -> list[Object]:
    return of_kind(objects, "HorizontalPodAutoscaler")


def scaled(objects: list[Object]) -> dict[str, Any]:
    """What is said of each role's pods."""
    return {each["spec"]["scaleTargetRef"]["name"]: each["spec"] for each in of_kind(objects, "ScaledObject")}


def used_triggers(objects: list[Object]) -> list[Object]:
    return [trigger for spec in scaled(objects).values() for trigger in spec["triggers"]]


def looks_at(trigger: Object) -> tuple[str, str, str]:
    given = trigger["metadata"]
    match trigger["type"]:
        case "rabbitmq":
            return "rabbitmq", given["queueName"], given["value"]
        case "prometheus":
            return "prometheus", given["query"], given["threshold"]
        case "kafka":
            return "kafka", given["consumerGroup"], given["lagThreshold"]
        case kind:
            return kind, "", given["value"]


@pytest.mark.parametrize("combination", SCALED, ids=str)
def test_each_role_is_scaled_as_the_table_says(renderings: Renderings, combination: Combination) -> None:
    found = {
        role: (spec["minReplicaCount"], spec["maxReplicaCount"], [looks_at(trigger) for trigger in spec["triggers"]])
        for role, spec in scaled(renderings[combination]).items()
    }
    assert found == TABLE
    assert found.keys() == set(SERVICES)


@pytest.mark.parametrize("combination", SCALED, ids=str)
async def test_each_queue_that_workers_consume_has_a_trigger(renderings: Renderings, combination: Combination) -> None:
    triggers = scaled(renderings[combination])["worker"]["triggers"]
    watched = [trigger["metadata"]["queueName"] for trigger in triggers if trigger["type"] == "rabbitmq"]
    servers = Servers(load({"CARILLON_BROKER_URL": "memory://"}), service="worker")
    consumed = queues_of(build_stages(Rooms(servers)))
    await servers.close()
    assert sorted(watched) == sorted(consumed)


@pytest.mark.parametrize("combination", SCALED_BY_CPU, ids=str)
def test_without_keda_each_role_is_scaled_by_its_cpu(renderings: Renderings, combination: Combination) -> None:
    found = {each["spec"]["scaleTargetRef"]["name"]: each["spec"] for each in by_cpu(renderings[combination])}
    bounds = {role: (spec["minReplicas"], spec["maxReplicas"]) for role, spec in found.items()}
    assert bounds == {role: (fewest, most) for role, (fewest, most, _) in TABLE.items()}
    assert not of_kind(renderings[combination], "ScaledObject", "TriggerAuthentication")
    for spec in found.values():
        target = {"type": "Utilization", "averageUtilization": 70}
        assert spec["metrics"] == [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
        assert spec["behavior"] == BEHAVIOR


@pytest.mark.parametrize("combination", [*COMBINATIONS, *SCALED_BY_CPU], ids=str)
def test_one_alone_says_how_many_pods_there_are(renderings: Renderings, combination: Combination) -> None:
    autoscalers = of_kind(renderings[combination], "ScaledObject", "HorizontalPodAutoscaler")
    ruled = Counter(each["spec"]["scaleTargetRef"]["name"] for each in autoscalers)
    deployments = {each["metadata"]["name"]: each["spec"] for each in of_kind(renderings[combination], "Deployment")}
    assert {name for name, spec in deployments.items() if "replicas" not in spec} == ruled.keys()
    assert set(ruled.values()) <= {1}
    assert all(spec.get("replicas", 2) >= 2 for spec in deployments.values())


@pytest.mark.parametrize("combination", SCALED, ids=str)
def test_pods_end_slowly_and_never_all(renderings: Renderings, combination: Combination) -> None:
    for spec in scaled(renderings[combination]).values():
        behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        assert behavior == BEHAVIOR
        assert "fallback" not in spec
        assert "idleReplicaCount" not in spec


@pytest.mark.parametrize("combination", SCALED, ids=str)
def test_each_trigger_has_parameters_that_keda_knows(renderings: Renderings, combination: Combination) -> None:
    logins = {each["metadata"]["name"]: each for each in of_kind(renderings[combination], "TriggerAuthentication")}
    for trigger in used_triggers(renderings[combination]):
        known = triggers()[trigger["type"]]
        login = logins[trigger["authenticationRef"]["name"]] if "authenticationRef" in trigger else None
        brought = {reference["parameter"] for reference in login["spec"]["secretTargetRef"]} if login else set()
        assert trigger["metadata"].keys() <= set(known["metadata"])
        assert brought <= set(known["authentication"])
        assert set(known["required"]) <= trigger["metadata"].keys() | brought


@pytest.mark.parametrize("combination", SCALED, ids=str)
def test_keda_finds_rabbitmq_and_kafka_where_carillon_does(renderings: Renderings, combination: Combination) -> None:
    (settings,) = of_kind(renderings[combination], "ConfigMap")
    secret = passwords(Combination(combination.place, ("tls",) if combination.place == "production" else ()))
    given = settings["data"] | secret
    vhost = given["CARILLON_BROKER_URL"].rpartition("/")[2]
    servers = re.split(r"[@?]", given["CARILLON_STREAM_URL"].partition("//")[2])
    (login,) = of_kind(renderings[combination], "TriggerAuthentication")
    (host,) = login["spec"]["secretTargetRef"]
    assert (host["name"], host["key"] in secret) == ("carillon", True)
    for trigger in used_triggers(renderings[combination]):
        if trigger["type"] == "rabbitmq":
            # Over AMQP it would not count what workers hold.
            assert (trigger["metadata"]["protocol"], trigger["metadata"]["vhostName"]) == ("http", vhost)
        if trigger["type"] == "kafka":
            assert trigger["metadata"]["bootstrapServers"] in servers


def test_prometheus_is_asked_for_metrics_that_there_are(renderings: Renderings) -> None:
    names = {metric.name for metric in REGISTRY.collect()}
    asked = {
        name
        for trigger in used_triggers(renderings[SCALED[0]])
        if trigger["type"] == "prometheus"
        for name in re.findall(r"carillon_\w+", trigger["metadata"]["query"])
    }
    assert asked == {BATCH_AGE, OCCURRENCE_AGE}
    assert asked <= names
