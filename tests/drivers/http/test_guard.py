"""Which addresses may be called."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.drivers.http.guard import Guard

CLOSED = Guard(())


GUARDED = {
    "unspecified": ["0.0.0.0", "0.1.2.3", "::"],
    "private": [
        "10.255.255.255",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "198.19.0.1",
        "64:ff9b::10.0.0.1",
        "fc00::1",
        "fd00:ec2::254",
        "fec0::1",
    ],
    "carrier": ["100.64.0.1", "100.127.255.255"],
    "loopback": ["127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1"],
    "cloud": ["168.63.129.16"],
    "link-local": ["169.254.169.254", "::ffff:a9fe:a9fe", "64:ff9b::a9fe:a9fe", "fe80::1", "fe80::1%eth0", "febf::1"],
    "reserved": ["192.0.0.192", "240.0.0.1", "255.255.255.255", "100::1", "2001:2::1", "5f00::1", "4000::1"],
    "documentation": ["192.0.2.1", "2001:db8::1", "3fff::1"],
    "6to4": ["192.88.99.1", "2002:7f00:1::", "2002:808:808::1"],
    "multicast": ["224.0.0.1", "239.255.255.255", "ff02::1"],
    "compatible": ["::7f00:1", "::8.8.8.8"],
    "NAT64": ["64:ff9b:1::1"],
    "Teredo": ["2001::1"],
    "no address": ["localhost", "", "127.1", "8.8.8.08"],
}


@pytest.mark.parametrize(
    ("address", "kind"), [(address, kind) for kind, all_of in GUARDED.items() for address in all_of]
)
def test_what_only_we_can_reach_is_guarded(address: str, kind: str) -> None:
    assert kind in (CLOSED.objection(address) or "")


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.1",
        "169.253.255.255",
        "172.15.255.255",
        "172.32.0.0",
        "192.169.0.0",
        "223.255.255.255",
        "2001:4860:4860::8888",
        "2606:4700::1111",
        "2a00::1",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
    ],
)
def test_the_internet_may_be_called(address: str) -> None:
    assert CLOSED.objection(address) is None


@given(st.ip_addresses())
def test_nothing_passes_that_python_knows_to_be_special(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if CLOSED.objection(str(address)) is None:
        judged = getattr(address, "ipv4_mapped", None) or address
        assert judged.is_global and not judged.is_multicast and not judged.is_reserved & (judged.version == 4)


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_in_ipv6_clothes_gains_nothing(address: ipaddress.IPv4Address) -> None:
    assert CLOSED.objection(f"::ffff:{address}") == CLOSED.objection(str(address))
    assert CLOSED.objection(f"64:ff9b::{address}") == CLOSED.objection(str(address))


@given(st.ip_addresses())
def test_an_allowed_network_is_allowed_whatever_it_is(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    assert Guard(("0.0.0.0/0", "::/0")).objection(str(address)) is None
    judged = getattr(address, "ipv4_mapped", None) or address
    assert Guard((f"{judged}/{judged.max_prefixlen}",)).objection(str(address)) is None


def test_allowing_one_network_allows_no_other() -> None:
    guard = Guard(("10.1.0.0/16", "fe80::/10"))
    assert guard.objection("10.1.2.3") is None and guard.objection("::ffff:10.1.2.3") is None
    assert guard.objection("fe80::1%eth0") is None
    assert guard.objection("10.2.0.1") and guard.objection("127.0.0.1") and guard.objection("64:ff9b::10.1.2.3")
