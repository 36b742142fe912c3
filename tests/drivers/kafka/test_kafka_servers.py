"""What a URL of Kafka says."""

from pathlib import Path
from typing import Any

import pytest

from shared.core.errors import Invalid
from shared.drivers.kafka.servers import KafkaServers
from shared.runtime.private import without_secrets
from shared.runtime.server_settings import NO_FILES, TlsSettings
from tests.stack.certificates import Authority

LOGIN = {"sasl_plain_username": "ana", "sasl_plain_password": "p@:/ss"}


@pytest.mark.parametrize(
    ("url", "security"),
    [
        ("kafka://a:1,b:2", {"security_protocol": "PLAINTEXT"}),
        ("kafka+ssl://a:1,b:2/", {"security_protocol": "SSL"}),
        (
            "kafka://ana:p%40%3A%2Fss@a:1,b:2",
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-512", **LOGIN},
        ),
        (
            "kafka+ssl://ana:p%40%3A%2Fss@a:1,b:2?mechanism=SCRAM-SHA-256",
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-256", **LOGIN},
        ),
        (
            "kafka+ssl://ana:p%40%3A%2Fss@a:1,b:2?mechanism=plain",
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", **LOGIN},
        ),
    ],
)
def test_it_says_addresses_and_security(url: str, security: dict[str, Any]) -> None:
    options = KafkaServers.read(url, NO_FILES).options("me")
    context = options.pop("ssl_context", None)
    assert options == {"bootstrap_servers": "a:1,b:2", "client_id": "me", **security}
    assert (context is not None) == ("SSL" in security["security_protocol"])


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("kafka://", "needs kafka://host:port"),
        ("http://a:1", "needs kafka://host:port"),
        ("kafka://a:1/topic", "needs kafka://host:port"),
        ("kafka://a:1?mechanism", "needs kafka://host:port"),
        ("kafka://ana:tell-no-one@a:1?mechanism=gssapi", "mechanism is one of scram-sha-512, scram-sha-256, plain"),
        ("kafka://ana@a:1", "needs a user and a password"),
        ("kafka://a:1?mechanism=plain", "needs a user and a password"),
        ("kafka+ssl://a:1?mechanism=oauthbearer", "needs token_file"),
        ("kafka+ssl://ana:tell-no-one@a:1?mechanisms=plain", "mechanisms: one of"),
        ("kafka+ssl://a:1?ca_file=/none.pem", "cannot be used"),
    ],
)
def test_what_it_cannot_say_is_refused(url: str, says: str) -> None:
    with pytest.raises(Invalid, match=says) as refused:
        KafkaServers.read(url, NO_FILES)
    assert refused.value.field in {"stream.url", "tls.ca_file"}
    assert "tell-no-one" not in str(refused.value)


def test_its_own_files_take_the_place_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(Authority().pem)
    missing = TlsSettings(ca_file="/none.pem")
    with pytest.raises(Invalid):
        KafkaServers.read("kafka+ssl://a:1", missing)
    assert KafkaServers.read(f"kafka+ssl://a:1?ca_file={tmp_path / 'ca.pem'}", missing).security["ssl_context"]


def test_no_repr_shows_a_password() -> None:
    url = "kafka+ssl://ana:tell-no-one@a:1,b:2"
    assert "tell-no-one" not in repr(KafkaServers.read(url, NO_FILES))
    assert "tell-no-one" not in without_secrets(url)
