"""What an API takes: the rules of URLs, methods, headers and secrets, each with the field that breaks it."""

import ipaddress
import socket
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from yarl import URL

from shared.core.errors import Invalid
from shared.drivers.http.checks import PROVIDER_NETWORKS, check_headers, check_method, check_url
from shared.drivers.http.guard import Guard
from shared.drivers.http.signing import check_secret


def _refused(check: Callable[[], None]) -> Invalid:
    with pytest.raises(Invalid) as caught:
        check()
    return caught.value


def _takes(url: str) -> bool:
    try:
        check_url(url, allowed_networks=(), field="url")
    except Invalid:
        return False
    return True


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example",
        "https://hooks.example/",
        "HTTPS://HOOKS.EXAMPLE:443/a?b=c#d",
        "https://8.8.8.8/",
        "https://[2606:4700::1111]:8443/x",
        "https://hooks.example./",
        "https://my_service.ns.svc/",
        "http://intranet/",
        "https://xn--mnchen-3ya.example/%C3%A4?q=a+b&c[]=1;d,e'(f)*!$~@:",
        "https://3com.example",
        "https://h/?u=http://x@y/",
        "https://h:65535",
        f"https://h/{'x' * 2_038}",
    ],
)
def test_urls_that_may_be_called(url: str) -> None:
    check_url(url, allowed_networks=(), field="url")


REFUSED = {
    "begins with http": [
        "",
        "hooks.example",
        "not a url",
        " http://h",
        "//hooks.example/",
        "ftp://h/",
        "file:///etc/passwd",
        "http:/h",
        "unix://h",
    ],
    "no host": ["http://", "http:///x", "https://:80/"],
    "user or password": ["http://me:hush@h/", "http://@h/", "http://h@/"],
    "port": [
        "http://h:0/",
        "http://h:65536/",
        "http://h:/",
        "http://h:1:2/",
        "http://h:+80/",
        "http://[::1",
        "http://::1/",
        "http://[::1]x/",
    ],
    "2,048": [f"https://h/{'x' * 2_039}"],
    "percent-encoded": [
        "http://h /",
        "http://h/\r\nX: y",
        "http://h/\t",
        "http://h\0/",
        "http://h/\x7f",
        "http://h\\@i/",
        "http://h/ä",
        "http://①②⑦.0.0.1/",
        "http://h/%zz",
        "http://127。0。0。1/",
        "http://h/%",
        "http://h/{id}",
    ],
    "xn--": ["http://münchen.example/"],
    "DNS": [
        "http://a..b/",
        "http://.h/",
        "http://h../",
        "http://./",
        "http://-h/",
        f"http://{'x' * 64}/",
        f"http://{'x.' * 127}/",
        "http://a;b/",
    ],
    "loopback": ["http://127.0.0.1/", "http://[::1]/"],
    "link-local": ["http://169.254.169.254/latest/meta-data"],
    "private": ["http://[::ffff:10.0.0.1]/"],
    "localhost is a loopback": ["http://localhost/"],
    "localhost is": ["http://LocalHost.:8080/", "http://a.localhost/"],
    "four decimal": [
        "http://0/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://127.0.0.1./",
        "http://8.8.8.08/",
        "http://1.2.3.4.5/",
        "http://1.2.3.256/",
        "http://h.0x/",
        "http://[v1.x]/",
        "http://[]/",
        "http://[127.0.0.1]/",
        "http://%31%32%37.0.0.1/",
    ],
    "zone": ["http://[fe80::1%25eth0]/", "http://[::1%251]/"],
}


@pytest.mark.parametrize(("url", "reason"), [(url, reason) for reason, urls in REFUSED.items() for url in urls])
def test_urls_that_may_not(url: str, reason: str) -> None:
    refused = _refused(lambda: check_url(url, allowed_networks=(), field="callback.data.url"))
    assert reason in refused.reason
    assert (refused.field, refused.value) == ("callback.data.url", url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/", "http://localhost/", "http://10.0.0.1/"])
def test_a_closed_network_is_refused_with_the_setting_that_opens_it(url: str) -> None:
    refused = _refused(lambda: check_url(url, allowed_networks=(), field="callback.data.url"))
    assert refused.reason.endswith("; the setting callbacks.allowed_networks can allow its network")
    refused = _refused(lambda: check_url(url, allowed_networks=(), field="url", setting=PROVIDER_NETWORKS))
    assert "providers.allowed_networks" in refused.reason


def test_an_allowed_network_may_be_named_in_a_url() -> None:
    for url in ("http://127.0.0.1/", "http://localhost/", "http://[::ffff:127.0.0.1]/"):
        check_url(url, allowed_networks=("127.0.0.0/8",), field="url")
    refused = _refused(lambda: check_url("http://[::1]/", allowed_networks=("127.0.0.0/8",), field="url"))
    assert "loopback" in refused.reason


HOSTS = st.text("0123456789abcdefx.:[]%@-_~é。", max_size=24)


@given(HOSTS, st.sampled_from(["", ":80", "/", "/a@b", "?c", "#d", "\\@e"]))
@example("0x7f.1", "")
@example("017700000001", "")
def test_no_url_that_is_taken_reads_differently_elsewhere(host: str, rest: str) -> None:
    url = f"http://{host}{rest}"
    if not _takes(url):
        return
    read = URL(url, encoded=True)
    assert (read.raw_host or "") == host.partition("]")[0].lstrip("[") if "[" in host else host.partition(":")[0]
    assert read.raw_user is None and read.raw_password is None
    try:
        # The most lenient reading of all: what the C library takes for an address without asking anybody.
        meant = socket.inet_ntoa(socket.inet_aton(read.raw_host or ""))
    except OSError:
        return
    assert meant == read.raw_host and Guard(()).objection(meant) is None


@given(st.ip_addresses(v=4), st.lists(st.sampled_from(["{:d}", "0{:o}", "0x{:x}"]), min_size=4, max_size=4))
def test_odd_spellings_of_an_address_are_refused(address: ipaddress.IPv4Address, forms: list[str]) -> None:
    octets = address.packed
    spelled = ".".join(form.format(octet) for form, octet in zip(forms, octets, strict=True))
    plain = spelled == str(address)
    assert _takes(f"http://{spelled}/") == (plain and Guard(()).objection(str(address)) is None)
    assert not _takes(f"http://{int(address)}/")
    assert not _takes(f"http://{int(address):#x}/")
    assert not _takes(f"http://{octets[0]}.{int.from_bytes(octets[1:])}/")


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_methods(method: str) -> None:
    check_method(method, "method")


@pytest.mark.parametrize("method", ["", "post", "HEAD", "CONNECT", "TRACE", "POST /x HTTP/1.1\r\n", "POST "])
def test_other_methods(method: str) -> None:
    assert _refused(lambda: check_method(method, "data.method")).field == "data.method"


def test_headers() -> None:
    check_headers({}, "headers")
    check_headers({"Authorization": "Bearer a.b-c", "X-Empty": "", "x_y": "a\tb", "Cookie": "a=b"}, "headers")
    check_headers({f"X-{number}": "" for number in range(50)}, "headers")
    check_headers({"X": "x" * (8 * 1024 - 5)}, "headers")


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "content-length",
        "Transfer-Encoding",
        "CONNECTION",
        "Keep-Alive",
        "TE",
        "Trailer",
        "Upgrade",
        "Expect",
        "Proxy-Authorization",
        "Content-Encoding",
        "webhook-id",
        "Webhook-Signature",
        "webhook_id",
        "Content_Length",
        "Transfer_Encoding",
        "carillon-key",
        "Carillon-Anything",
        "X-Forwarded-Email",
        "x_forwarded_email",
        "x-forwarded-for",
        "Forwarded",
        "X-Real-IP",
        "Metadata-Flavor",
        "X-AWS-EC2-Metadata-Token",
        "x-aws-ec2-metadata-token-ttl-seconds",
        "X-Carillon-Proxy-Secret",
        "",
        "a b",
        "a:b",
        "a\r\nb",
        "ä",
        "a\0",
    ],
)
def test_headers_that_may_not_be_set(name: str) -> None:
    assert _refused(lambda: check_headers({"X-Fine": "x", name: "x"}, "data.headers")).field == f"data.headers.{name}"


@pytest.mark.parametrize("value", ["hush\r\nX: y", "hush\n", "hush\r", "hush\0", "hush\x7f", "hush ä", "hush\x1b[0m"])
def test_values_that_could_end_a_header(value: str) -> None:
    refused = _refused(lambda: check_headers({"X": value}, "headers"))
    assert refused.field == "headers.X"
    assert "hush" not in f"{refused.reason}{refused.value}"


def test_too_many_and_too_long_headers_and_the_same_twice() -> None:
    assert "50" in _refused(lambda: check_headers({f"X-{n}": "" for n in range(51)}, "headers")).reason
    assert "8,192" in _refused(lambda: check_headers({"X": "x" * (8 * 1024 - 4)}, "headers")).reason
    assert "twice" in _refused(lambda: check_headers({"X-Y": "1", "x-y": "2"}, "headers")).reason


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        "hush",
        "whsec_aHVzaA==",
        "whsec_" + "A" * 31,
        "whsec_" + "A" * 88,
        "whsec_" + "A" * 31 + "-",
        "whsec_" + "A" * 31 + "ä",
        "WHSEC_" + "A" * 32,
        "A" * 32,
        "whsec_" + "A" * 32 + "\n",
        "whsec_" + "hush" * 8 + "=",
    ],
)
def test_secrets_that_sign_nothing_are_refused_and_not_shown(secret: str) -> None:
    refused = _refused(lambda: check_secret(secret, "data.secret"))
    assert (refused.field, refused.value) == ("data.secret", None)
    assert not secret or secret not in refused.reason.replace("whsec_ and", "")
