"""Who connects to whom, as the rendered policies add up; who has to, the code says: what each process holds."""

import gc
import weakref
from collections.abc import Iterator, Mapping
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Any
from urllib.parse import urlsplit

import pytest

from services.wiring.process import build_service, set_up
from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from shared.drivers.http.guard import _SPECIAL, guard_of
from shared.runtime.configuration import load
from shared.runtime.settings import Settings
from tests.deploy.manifests import SERVICES, Object, image_settings
from tests.deploy.rendering import COMPONENTS, PLACES, Combination, Renderings, all_combinations
from tests.deploy.test_kustomize import carillons, of_kind, passwords

ROLES = (*SERVICES, "init")
GUARDED = all_combinations("network-policies")
Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address
INTERNET = ("0.0.0.0/0", "2000::/3")

DEFAULT_PORTS = {"mongodb": 27017, "http": 80, "https": 443, "smtp": 25}
ANYWHERE = ("outgoing", "provider_outgoing", "bus_outgoing", "slow_bus_outgoing")
"""What calls any port of hosts that users name: callbacks, providers (`smtp` and `http` have a port of their own) and
receivers."""

IDLE = {"scheduler": "blobs"}
"""Every process has the kinds of jobs in hand; the file of a push job's control group is written by workers alone."""

AN_SMTP_SERVER = {"CARILLON_MAIL_URL": "smtp://carillon:secret@mail.carillon-servers:587"}


class Held:
    """Stands for a capability: what can be asked of it before anything is connected to."""

    delivers = True
    bucket = "carillon"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        async def answer(*_: object, **__: object) -> None:
            return None

        return answer


@cache
def held(role: str) -> frozenset[str]:
    """The servers that something in a process of this role has in hand when it is built: it will use them."""
    names = ("broker", "stream", "audience", "blobs", "mail", *ANYWHERE)
    given = {name: Held() for name in names}
    seen = {name: weakref.ref(each) for name, each in given.items()}
    servers = Servers(load({}), service=role, **given)
    given.clear()
    rooms = Rooms(servers)
    built = build_service(role, rooms)
    for name in names:
        del vars(servers)[name]
    gc.collect()
    assert built
    return frozenset({"store", *(name for name in names if seen[name]() is not None)} - {IDLE.get(role)})


class Asked(Held):
    """Notes by its name that `init` asks something of it."""

    def __init__(self, name: str, notes: set[str]) -> None:
        self._name, self._notes = name, notes

    @property
    def schema(self) -> "Asked":
        return self

    def __getattr__(self, name: str) -> Any:
        answer = super().__getattr__(name)

        async def note(*_: object, **__: object) -> None:
            self._notes.add(self._name)
            await answer()

        return note


async def asked_by_init(settings: Settings) -> set[str]:
    """The servers that `carillon init` uses."""
    notes: set[str] = set()
    given = {name: Asked(name, notes) for name in ("store", "broker", "stream", "audience", "blobs", "mail")}
    await set_up(Rooms(Servers(settings, service="init", **given)))
    return notes


def addresses(settings: Settings) -> dict[str, set[tuple[str, int]]]:
    """Where the settings say that each capability's server is."""
    urls = {
        "store": (settings.store.url,),
        "broker": (settings.broker.url, settings.broker.management_url),
        "stream": (settings.stream.url,),
        "audience": (settings.audience.url,),
        "blobs": (settings.blobs.endpoint_url or f"https://s3.{settings.blobs.region}.amazonaws.com",),
        "mail": (settings.mail.url,),
    }
    return {name: {each for url in found for each in _addresses(url)} for name, found in urls.items()}


def _addresses(url: str) -> Iterator[tuple[str, int]]:
    scheme, network = urlsplit(url).scheme, urlsplit(url).netloc.rpartition("@")[2]
    for server in filter(None, network.split(",")):
        host, _, port = server.partition(":")
        yield host, int(port or DEFAULT_PORTS[scheme])


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


def settings_of(objects: list[Object], combination: Combination) -> Settings:
    """The settings of every process there, and a mail server."""
    (given,) = of_kind(objects, "ConfigMap")
    return load(AN_SMTP_SERVER | image_settings() | given["data"] | passwords(combination))


async def used(role: str, settings: Settings) -> frozenset[str] | set[str]:
    return await asked_by_init(settings) if role == "init" else held(role)


@pytest.mark.parametrize("combination", GUARDED, ids=str)
async def test_each_role_reaches_the_servers_that_it_works_with(
    renderings: Renderings, combination: Combination
) -> None:
    objects = renderings[combination]
    settings = settings_of(objects, combination)
    where, opened = addresses(settings), {}
    for workload in carillons(objects):
        role, egress = workload["metadata"]["name"], list(rules(objects, workload, "egress"))
        wanted = {address for name in await used(role, settings) for address in where.get(name, ())}
        assert [address for address in sorted(wanted) if not any(leads_to(rule, *address) for rule in egress)] == [], (
            f"{role} cannot reach them"
        )
        ports_of_servers = {port for name in where for _, port in where[name] if port != 443}
        opened[role] = {port for rule in egress if is_for_servers(rule) for port in ports(rule) & ports_of_servers}
        assert opened[role] == {port for host, port in wanted if host.endswith(".carillon-servers")}, (
            f"{role} reaches what it does not need"
        )


def is_for_servers(rule: Object) -> bool:
    return any("ipBlock" not in peer and namespace(peer) == "carillon-servers" for peer in rule["to"])


def leads_to(rule: Object, host: str, port: int) -> bool:
    """Whether the rule opens this port of a host, which is in the namespace of its name, or on the Internet."""
    inside = host.endswith(".carillon-servers")
    fits = is_for_servers(rule) if inside else any("ipBlock" in peer for peer in rule["to"])
    return fits and (not ports(rule) or port in ports(rule))


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
async def test_who_calls_hosts_of_users_reaches_every_port_on_the_internet(
    renderings: Renderings, combination: Combination
) -> None:
    objects = renderings[combination]
    settings = settings_of(objects, combination)
    outside = {
        workload["metadata"]["name"]: ports(rule)
        for workload in carillons(objects)
        for rule in rules(objects, workload, "egress")
        if any("ipBlock" in peer for peer in rule["to"])
    }
    callers = {name for name in ROLES if await used(name, settings) & {*ANYWHERE}}
    assert callers == {"api", "worker"}
    assert outside == {role: set() for role in callers}, "an empty set is any port"


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
