"""Which connections others could read, or pose in."""

import base64

import pytest

from shared.drivers.secrets import fresh_key
from shared.runtime.configuration import Misconfigured, load
from shared.runtime.settings import Settings
from shared.runtime.weaknesses import find_examples, find_weaknesses

STRONG = {
    "STORE_URL": [
        "mongodb://u:p@db.example.com/x?tls=true",
        "mongodb://u:p@db.example.com/x?ssl=true&tlsCAFile=/ca.pem",
        "mongodb+srv://u:p@db.example.com/x",
        "mongodb://u:p@localhost:27017,127.0.0.2:1,[::1]:2/x",
        "mongodb://%2Ftmp%2Fmongodb.sock/x",
    ],
    "BROKER_URL": ["amqps://u:p@mq/x", "amqps://u:p@mq/x?cafile=/ca.pem", "amqp://u:p@127.0.0.1/x", "memory://"],
    "BROKER_MANAGEMENT_URL": ["https://u:p@mq:15671", "http://u:p@localhost:15672"],
    "STREAM_URL": ["kafka+ssl://u:p@k1:9093,k2:9093", "kafka://127.0.0.1:9092,[::1]:9092", "local:///x"],
    "AUDIENCE_URL": [
        "postgresql://u:p@pg/x?sslmode=verify-full",
        "postgresql://u:p@127.0.0.1/x",
        "postgresql:///x?host=/var/run/postgresql",
    ],
    "BLOBS_ENDPOINT_URL": ["", "https://s3.example.com"],
    "MAIL_URL": [
        "",
        "smtps://u:p@mx",
        "smtp://u:p@mx",
        "smtp://mx?tls=required",
        "sendgrid://apikey:k@api.example.com",
    ],
}
WEAK = {
    "STORE_URL": [
        ("mongodb://u:p@db.example.com/x", "not encrypted"),
        ("mongodb://u:p@127.0.0.1,db.example.com/x", "not encrypted"),
        ("mongodb://u:p@db.example.com/x?tls=true&tlsAllowInvalidCertificates=true", "not verified"),
        ("mongodb+srv://u:p@db.example.com/x?tls=false", "not encrypted"),
    ],
    "BROKER_URL": [("amqp://u:p@mq/x", "not encrypted"), ("amqps://u:p@mq/x?no_verify_ssl=1", "not verified")],
    "BROKER_MANAGEMENT_URL": [("http://u:p@mq:15672", "not encrypted")],
    "STREAM_URL": [("kafka://u:p@k1:9092", "not encrypted"), ("kafka://127.0.0.1:9092,k2:9092", "not encrypted")],
    "AUDIENCE_URL": [
        ("postgresql://u:p@pg/x", "does not verify who answers (sslmode=prefer)"),
        ("postgresql://u:p@pg/x?sslmode=require", "does not verify"),
        ("postgresql://u:p@pg/x?sslmode=verify-ca", "does not verify"),
        ("postgresql://u:p@pg/x?sslmode=disable", "not encrypted"),
        ("postgresql:///x?host=pg", "does not verify"),
    ],
    "BLOBS_ENDPOINT_URL": [("http://minio:9000", "not encrypted")],
    "MAIL_URL": [("smtp://mx", "may not be encrypted"), ("smtp://u:p@mx?tls=offered", "may not be encrypted")],
}


def test_nothing_leaves_the_machine_by_default() -> None:
    assert find_weaknesses(Settings()) == []


@pytest.mark.parametrize(("name", "url"), [(name, url) for name, urls in STRONG.items() for url in urls])
def test_it_is_strong(name: str, url: str) -> None:
    assert find_weaknesses(load({f"CARILLON_{name}": url})) == []


@pytest.mark.parametrize(("name", "url", "says"), [(name, *case) for name, cases in WEAK.items() for case in cases])
def test_it_is_weak(name: str, url: str, says: str) -> None:
    [(field, sentence)] = find_weaknesses(load({f"CARILLON_{name}": url}))
    assert field == name.lower().replace("_", ".", 1)
    assert says in sentence
    assert "u:p@" not in sentence


OWN = base64.b64encode(bytes(range(32))).decode()
LAPTOPS = base64.b64encode(b"carillon on a laptop: no secret!").decode()


@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        ("PROVIDERS_SECRET_KEYS", LAPTOPS, "providers.secret_keys"),
        ("PROVIDERS_SECRET_KEYS", f"{OWN}, {LAPTOPS}", "providers.secret_keys"),
        ("CALLBACKS_SIGNING_SECRET", f"whsec_{LAPTOPS}", "callbacks.signing_secret"),
        ("API_PUBLIC_URL", "https://carillon.example.com/push", "api.public_url"),
    ],
)
def test_what_our_files_show_is_no_secret(name: str, value: str, field: str) -> None:
    [(found, sentence)] = find_examples(load({f"CARILLON_{name}": value}))
    assert found == field
    assert LAPTOPS not in sentence
    with pytest.raises(Misconfigured, match=f"{field}: .*\\(tls.required\\)"):
        load({f"CARILLON_{name}": value, "CARILLON_TLS_REQUIRED": "off_loopback"})


def test_values_of_ones_own_are_no_examples() -> None:
    own = {"PROVIDERS_SECRET_KEYS": fresh_key(), "CALLBACKS_SIGNING_SECRET": f"whsec_{fresh_key()}"}
    own["API_PUBLIC_URL"] = "https://push.no-example.com"
    assert find_examples(Settings()) == find_examples(load({f"CARILLON_{key}": own[key] for key in own})) == []


def test_what_still_asks_to_be_changed_is_refused_everywhere() -> None:
    with pytest.raises(
        Misconfigured, match=r"store.url \(CARILLON_STORE_URL in the environment\): must not contain CHANGE-ME"
    ) as refused:
        load({"CARILLON_STORE_URL": "mongodb://carillon:CHANGE-ME@db/x"})
    assert "mongodb" not in str(refused.value)
