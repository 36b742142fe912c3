"""Who connects to whom, as the rendered policies add up."""

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

import pytest

from shared.outgoing.guard import _SPECIAL, guard_of
from tests.deploy.manifests import Object
from tests.deploy.rendering import COMPONENTS, PLACES, Combination, Renderings, all_combinations
from tests.deploy.test_kustomize import carillons, of_kind

GUARDED = all_combinations("network-policies")
Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address
INTERNET = ("0.0.0.0/0", "2000::/3")

MONGODB, POSTGRESQL, S3 = {27017}, {5432}, {8333}
RABBITMQ, KAFKA, MAIL = {5672, 5671, 15672, 15671}, {9092, 9093}, {587, 465}
SERVERS = {
    "api": MONGODB | RABBITMQ | KAFKA | POSTGRESQL | S3,
    "scheduler": MONGODB | RABBITMQ | KAFKA,
    "worker": MONGODB | RABBITMQ | KAFKA | POSTGRESQL | S3 | MAIL,
    "feedback": MONGODB | KAFKA,
    "fanout": MONGODB | RABBITMQ | KAFKA,
    "init": MONGODB | RABBITMQ | KAFKA | POSTGRESQL,
}


def takes(selector: Object, labels: Mapping[str, str]) -> bool:
    """Whether a selector takes a pod with these labels."""
    wanted = selector.get("matchLabels", {})
    expressions = selector.get("matchExpressions", [])
    assert all(expression["operator"] == "In" for expression in expressions)
    return wanted.items() <= labels.items() and all(
        labels.get(expression["key"]) in expression["values"] for expression in expressions
    )


def rules(objects: list[Object], workload: Object, direction: str) -> Iterator[Object]:
    """The rules that open a workload's pods in a direction, `ingress` or `egress`."""
    labels = workload["spec"]["template"]["metadata"]["labels"]
    for policy in of_kind(objects, "NetworkPolicy"):
        if takes(policy["spec"]["podSelector"], labels):
            yield from policy["spec"].get(direction, [])


def ports(rule: Object) -> set[int]:
    return {port["port"] for port in rule.get("ports", [])}


def namespace(peer: Object) -> str:
    name: str = peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
    return name


@pytest.mark.parametrize("combination", GUARDED, ids=str)
def test_what_no_policy_speaks_of_is_closed_both_ways(renderings: Renderings, combination: Combination) -> None:
    policies = [policy["spec"] for policy in of_kind(renderings[combination], "NetworkPolicy")]
    assert [spec for spec in policies if spec["podSelector"] == {}] == [
        {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    ]
    for spec in policies:
        assert all(spec.get(direction.lower(), [{}]) for direction in spec["policyTypes"])
        assert not any(rule == {} for direction in ("ingress", "egress") for rule in spec.get(direction, []))


@pytest.mark.parametrize("combination", GUARDED, ids=str)
def test_only_the_ingress_reaches_the_api_and_only_monitoring_the_metrics(
    renderings: Renderings, combination: Combination
) -> None:
    for workload in carillons(renderings[combination]):
        opened = {
            port: [namespace(peer) for peer in rule["from"]]
            for rule in rules(renderings[combination], workload, "ingress")
            for port in ports(rule)
        }
        api = workload["metadata"]["name"] == "api"
        assert opened == ({8080: ["ingress-nginx"]} if api else {}) | {9090: ["monitoring"]}
        containers = workload["spec"]["template"]["spec"]["containers"]
        assert {port["containerPort"] for port in containers[0].get("ports", [])} <= opened.keys()


@pytest.mark.parametrize("combination", GUARDED, ids=str)
def test_each_role_reaches_the_servers_that_it_works_with(renderings: Renderings, combination: Combination) -> None:
    reached: dict[str, set[int]] = {}
    for workload in carillons(renderings[combination]):
        for rule in rules(renderings[combination], workload, "egress"):
            if [peer for peer in rule["to"] if "ipBlock" not in peer and namespace(peer) == "carillon-servers"]:
                reached.setdefault(workload["metadata"]["name"], set()).update(ports(rule))
    assert reached == SERVERS


@pytest.mark.parametrize("combination", GUARDED, ids=str)
def test_everybody_may_ask_for_names(renderings: Renderings, combination: Combination) -> None:
    for workload in carillons(renderings[combination]):
        asking = [rule for rule in rules(renderings[combination], workload, "egress") if 53 in ports(rule)]
        assert [
            (namespace(peer), port["protocol"]) for rule in asking for peer in rule["to"] for port in rule["ports"]
        ] == [
            ("kube-system", "UDP"),
            ("kube-system", "TCP"),
        ]


@pytest.mark.parametrize("combination", GUARDED, ids=str)
def test_only_workers_call_anything_on_the_internet(renderings: Renderings, combination: Combination) -> None:
    outside = {
        workload["metadata"]["name"]: ports(rule)
        for workload in carillons(renderings[combination])
        for rule in rules(renderings[combination], workload, "egress")
        if any("ipBlock" in peer for peer in rule["to"])
    }
    assert outside == {"worker": set(), "api": {443}}, "an empty set is any port"


def edges(network: Network) -> Iterator[Address]:
    """The first and the last address of a network, and their neighbours outside of it."""
    kind = type(network[0])
    for number in (int(network[0]) - 1, int(network[0]), int(network[-1]), int(network[-1]) + 1):
        if 0 <= number < 2**network.max_prefixlen:
            yield kind(number)


def test_the_internet_is_what_callbacks_may_reach(renderings: Renderings) -> None:
    """The guard of callbacks judges both sides of each edge as the policies do: of each network in either's table."""
    guard = guard_of(())
    blocks = {
        (peer["ipBlock"]["cidr"], *peer["ipBlock"]["except"])
        for place in PLACES
        for policy in of_kind(renderings[Combination(place, COMPONENTS)], "NetworkPolicy")
        for rule in policy["spec"].get("egress", [])
        for peer in rule["to"]
        if "ipBlock" in peer
    }
    assert sorted(whole for whole, *_ in blocks) == sorted(INTERNET)
    for whole, *texts in blocks:
        left_out = [ip_network(text) for text in texts]
        guarded = [network for network, _ in _SPECIAL]
        for edge in (edge for network in [*left_out, *guarded] for edge in edges(network)):
            if edge in ip_network(whole):
                closed = any(edge in network for network in left_out)
                assert (guard.objection(str(edge)) is not None) == closed, edge
