"""Settings come from defaults, file and environment, and their manual reads back as themselves."""

import base64
import re
import tempfile
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import Meta

from shared.drivers.secrets import read_keys
from shared.runtime.configuration import Misconfigured, describe, list_settings, load
from shared.runtime.private import without_secrets
from shared.runtime.server_settings import MAIL_URL, BlobSettings, MailSettings, StoreSettings
from shared.runtime.settings import ApiSettings, CallbackSettings, FeedbackSettings, SchedulerSettings, Settings

HINTS = {name: get_type_hints(type(section), include_extras=True) for name, section in Settings().sections().items()}
FIELDS = [(section, field, hint) for section, hints in HINTS.items() for field, hint in hints.items()]
MANUAL = describe()
NETWORKS = st.lists(st.ip_addresses().map(str), max_size=3).map(tuple)


def values(section: str, field: str, hint: Any) -> st.SearchStrategy[Any]:
    """Anything that the field allows."""
    plain, *metas = get_args(hint)
    limits = next((meta for meta in metas if isinstance(meta, Meta) and meta.ge is not None), Meta())
    pattern = next((meta.pattern for meta in metas if isinstance(meta, Meta) and meta.pattern), None)
    if (section, field) == ("feedback", "topics"):
        return st.text().map(re.escape)
    if (section, field) == ("mail", "url"):
        return st.just("") | st.from_regex(MAIL_URL, fullmatch=True)
    if (section, field) == ("mail", "addressees"):
        return st.lists(st.sampled_from(["ana@example.com", "ops+carillon@example.org"]), max_size=3).map(tuple)
    if (section, field) == ("api", "allowed_hosts"):
        return st.lists(st.sampled_from(["carillon.example", "10.1.2.3", "[::1]"]), max_size=3).map(tuple)
    if (section, field) == ("api", "allowed_origins"):
        return st.lists(st.sampled_from(["https://a.example", "http://[::1]:8080"]), max_size=3).map(tuple)
    if (section, field) == ("tls", "required"):
        return st.just("nowhere")  # the generated URLs lead anywhere
    if field == "key_file":
        return st.just("")  # it needs its certificate
    if (section, field) == ("scheduler", "tick_seconds"):
        return st.floats(limits.ge, 0.4)  # a lease of two seconds takes five ticks
    if (section, field) == ("scheduler", "job_retention_days"):
        return st.just(0.0) | st.floats(365, limits.le)  # a key is remembered for a year at most
    if get_origin(plain) is Literal:
        return st.sampled_from(get_args(plain))
    if plain is bool:
        return st.booleans()
    if plain is int:
        return st.integers(int(limits.ge or 0), int(limits.le or 0))
    if plain is float:
        return st.floats(limits.ge, limits.le)
    if plain is str:
        return st.from_regex(pattern) if pattern else st.text(min_size=1)
    return NETWORKS


SETTINGS = st.builds(
    lambda *sections: Settings(**dict(zip(HINTS, sections, strict=True))),
    *(
        st.builds(type(default), **{field: values(name, field, hint) for field, hint in HINTS[name].items()})
        for name, default in Settings().sections().items()
    ),
)


@given(SETTINGS)
def test_the_manual_reads_back_as_the_same_settings(settings: Settings) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "carillon.toml")
        path.write_text(describe(settings), "utf-8", newline="")
        assert load({}, path) == settings


def test_every_control_character_survives_the_manual(tmp_path: Path) -> None:
    text = "".join(map(chr, [*range(32), 127, 0x85, 0x2028])) + '"\\#'
    settings = Settings(blobs=BlobSettings(region=text))
    (tmp_path / "carillon.toml").write_text(describe(settings), "utf-8", newline="")
    assert load({}, tmp_path / "carillon.toml") == settings


@pytest.mark.parametrize("password", ["pa'ss", 'pa"ss', "pa ss"])
def test_a_url_holds_nothing_that_would_hide_its_password_from_masking(password: str) -> None:
    with pytest.raises(Misconfigured, match=r"store\.url"):
        load({"CARILLON_STORE_URL": f"mongodb://carillon:{password}@host/carillon"})


@given(SETTINGS)
def test_the_environment_carries_every_setting(settings: Settings) -> None:
    environ = {}
    for section, field, _ in FIELDS:
        value = getattr(getattr(settings, section), field)
        text = ",".join(value) if isinstance(value, tuple) else str(value)
        environ[f"CARILLON_{section}_{field}".upper()] = text
    assert load(environ) == settings


def test_without_anything_the_defaults_hold() -> None:
    assert load({"PATH": "/bin", "CARILLON_FAULT": "x", "CARILLON_TEST_ANY": "y", "CARILLON_CACHE": "z"}) == Settings()


def test_the_defaults_obey_their_own_rules(tmp_path: Path) -> None:
    (tmp_path / "all.toml").write_text(describe())
    assert load({}, tmp_path / "all.toml") == Settings()


@pytest.mark.parametrize(("section", "field", "hint"), FIELDS)
def test_every_setting_is_documented_and_numbers_tell_their_unit(section: str, field: str, hint: Any) -> None:
    plain, *metas = get_args(hint)
    assert any(meta.description and meta.description.endswith(".") for meta in metas)
    if plain is float and field not in {"max_user_failure_in_batch", "max_batch_failure", "ratio"}:
        assert field.endswith(("_seconds", "_hours", "_days"))
    assert f"CARILLON_{section}_{field}".upper() in MANUAL


def test_environment_wins_over_file_and_file_over_default(tmp_path: Path) -> None:
    path = tmp_path / "carillon.toml"
    path.write_text("[worker]\nlanes = 2\nbatch_size = 1000\n")
    settings = load({"CARILLON_CONFIG": str(path), "CARILLON_WORKER_LANES": "3"})
    assert (settings.worker.lanes, settings.worker.batch_size, settings.worker.plans_in_flight) == (3, 1000, 2)


def test_lists_in_the_environment_are_separated_by_commas() -> None:
    assert load({"CARILLON_API_TRUSTED_PROXIES": "10.0.0.0/8, ::1/128"}).api.trusted_proxies == (
        "10.0.0.0/8",
        "::1/128",
    )
    assert load({"CARILLON_API_TRUSTED_PROXIES": ""}).api.trusted_proxies == ()


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("CARILLON_API_PROT", "1", "CARILLON_API_PORT"),
        ("CARILLON_WROKER_LANES", "1", "CARILLON_WORKER_LANES"),
        ("CARILLON_API_PORT", "99999", "api.port"),
        ("CARILLON_API_PORT", "", "api.port"),
        ("CARILLON_API_PORT", "tcp://10.0.0.1:8080", "api.port"),
        ("CARILLON_STREAM_COMPRESSION", "snappy", "stream.compression"),
        ("CARILLON_WORKER_BATCH_SIZE", "11000", "worker.batch_size"),
        ("CARILLON_SHUTDOWN_GRACE_SECONDS", "nan", "shutdown.grace_seconds"),
        ("CARILLON_STREAM_TOPIC_TEMPLATE", "push-%s", "stream.topic_template"),
        ("CARILLON_STREAM_LEDGER_TOPIC", "ledger\n", "stream.ledger_topic"),
        ("CARILLON_API_TRUSTED_PROXIES", "10.0.0.0/8,nowhere", "api.trusted_proxies"),
        ("CARILLON_API_TRUSTED_PROXIES", "10.0.0.1/8", "api.trusted_proxies"),
        ("CARILLON_FEEDBACK_TOPICS", "(", "feedback.topics"),
        ("CARILLON_MAIL_ADDRESSEES", "ana@example.com,bob", "mail.addressees"),
        ("CARILLON_MAIL_SENDER_NAME", "Carillon\r\nBcc: eve@example.com", "mail.sender_name"),
        ("CARILLON_MAIL_SENDER_ADDRESS", "Ana <ana@example.com>", "mail.sender_address"),
        ("CARILLON_MAIL_MESSAGE_ID_DOMAIN", "example..com", "mail.message_id_domain"),
        ("CARILLON_BLOBS_ENDPOINT_URL", "minio:9000", "blobs.endpoint_url"),
        ("CARILLON_BLOBS_PUBLIC_ENDPOINT_URL", "files.example.com", "blobs.public_endpoint_url"),
        ("CARILLON_BLOBS_UPLOAD_FOLDER", "", "blobs.upload_folder"),
        ("CARILLON_BLOBS_UPLOAD_FOLDER", "../jobs", "blobs.upload_folder"),
        ("CARILLON_BLOBS_CONTROL_GROUP_FOLDER", "/groups", "blobs.control_group_folder"),
    ],
)
def test_a_wrong_variable_is_named(variable: str, value: str, says: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        load({variable: value})
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[worker]\nlane = 2", "did you mean worker.lanes?"),
        ("[wroker]\nlanes = 2", "did you mean worker?"),
        ("worker = 2", "worker: no such section"),
        ('[worker]\nlanes = "many"', "worker.lanes"),
        ("[worker\n", "cannot be read"),
    ],
)
def test_a_wrong_file_is_named_with_its_fault(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "carillon.toml"
    path.write_text(text)
    with pytest.raises(Misconfigured) as caught:
        load({}, path)
    assert str(path) in str(caught.value)
    assert says in str(caught.value)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="cannot be read"):
        load({}, tmp_path / "missing.toml")


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(Misconfigured) as caught:
        load({"CARILLON_API_PORT": "x", "CARILLON_WORKER_LANES": "0", "CARILLON_NOTHING": "1"})
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_value_may_stand_in_a_file(tmp_path: Path, end: str) -> None:
    (tmp_path / "url").write_bytes(f"mongodb://root:s3cret@127.0.0.1/x{end}".encode())
    settings = load({"CARILLON_STORE_URL_FILE": str(tmp_path / "url")})
    assert settings.store.url == "mongodb://root:s3cret@127.0.0.1/x"


def test_lists_and_numbers_may_stand_in_files_too(tmp_path: Path) -> None:
    (tmp_path / "networks").write_text("10.0.0.0/8, ::1/128\n")
    (tmp_path / "lanes").write_text("3\n")
    names = {"API_TRUSTED_PROXIES": "networks", "WORKER_LANES": "lanes"}
    settings = load({f"CARILLON_{name}_FILE": str(tmp_path / file) for name, file in names.items()})
    assert (settings.api.trusted_proxies, settings.worker.lanes) == (("10.0.0.0/8", "::1/128"), 3)


def test_a_setting_whose_own_name_ends_so_is_no_file_with_a_value(tmp_path: Path) -> None:
    assert load({"CARILLON_TLS_CA_FILE": "/etc/ca.pem"}).tls.ca_file == "/etc/ca.pem"


@pytest.mark.parametrize(
    ("content", "more", "says"),
    [
        (b"mongodb://127.0.0.1/x", {"CARILLON_STORE_URL": "mongodb://127.0.0.1/y"}, "one of them at most"),
        (None, {}, "cannot be read: No such file"),
        (b"\xff", {}, "no text in UTF-8"),
        (b"s3cret", {}, "store.url (the file of CARILLON_STORE_URL_FILE in the environment)"),
    ],
)
def test_a_file_that_gives_no_value_is_named(
    tmp_path: Path, content: bytes | None, more: dict[str, str], says: str
) -> None:
    if content is not None:
        (tmp_path / "url").write_bytes(content)
    with pytest.raises(Misconfigured) as caught:
        load({"CARILLON_STORE_URL_FILE": str(tmp_path / "url"), **more})
    assert "CARILLON_STORE_URL_FILE" in str(caught.value)
    assert says in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_what_is_not_encrypted_keeps_a_process_from_starting_where_that_is_required() -> None:
    given = {"CARILLON_STORE_URL": "mongodb://root:s3cret@db/x", "CARILLON_TLS_REQUIRED": "off_loopback"}
    with pytest.raises(
        Misconfigured, match=r"^store\.url: the connection is not encrypted.*\(tls\.required\)$"
    ) as caught:
        load(given)
    assert "s3cret" not in str(caught.value)
    assert load({**given, "CARILLON_STORE_URL": "mongodb://root:s3cret@db/x?tls=true"}).tls.required == "off_loopback"


def test_a_key_needs_its_certificate() -> None:
    for section in ("TLS", "API", "HEALTH"):
        with pytest.raises(Misconfigured, match=rf"{section.lower()}\.key_file: its certificate_file is missing"):
            load({f"CARILLON_{section}_KEY_FILE": "/key.pem"})


def test_no_error_and_no_repr_shows_a_password() -> None:
    with pytest.raises(Misconfigured) as caught:
        load({"CARILLON_STORE_URL": "mongodb//root:s3cret@db/x"})
    assert "store.url" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(Settings(store=StoreSettings(url="mongodb://root:s3cret@db/x")))
    assert "db/x" in repr(Settings(store=StoreSettings(url="mongodb://root:s3cret@db/x")))


@pytest.mark.parametrize("password", ["s3cret", "s3/cr@t", "s3:cret", "%40s3cret"])
def test_passwords_are_masked_in_any_text(password: str) -> None:
    masked = without_secrets(f"cannot reach 'amqp://guest:{password}@host:5672/v', nor http://host:80/")
    assert masked == "cannot reach 'amqp://guest:***@host:5672/v', nor http://host:80/"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql://h/push?password=s3cret", "postgresql://h/push?password=***"),
        ("postgresql://h/push?user=u&sslpassword=s3cret&x=1", "postgresql://h/push?user=u&sslpassword=***&x=1"),
        ("GET https://s3/b/k?X-Amz-Signature=s3cret HTTP/1.1", "GET https://s3/b/k?X-Amz-Signature=*** HTTP/1.1"),
        ("url='https://h/hook?api_key=s3cret' failed", "url='https://h/hook?api_key=***' failed"),
        ("https://h/hook?page=3&order=up", "https://h/hook?page=3&order=up"),
    ],
)
def test_secrets_in_the_query_of_a_url_are_masked(text: str, masked: str) -> None:
    assert without_secrets(text) == masked


@pytest.mark.parametrize(
    "url",
    [
        "sendgrid://s3cret@api.sendgrid.com",
        "sendgrid://s3cret",
        "smtp://ana@example.com:s3cret@mail.example.com",
        "smtp://ana:s3'cret@mail.example.com",
        "smtp://ana:s3cret",
        "s3cret://ana:s3cret@host",
    ],
)
def test_a_mail_url_whose_password_could_not_be_masked_is_refused(url: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        load({"CARILLON_MAIL_URL": url})
    assert str(caught.value).startswith("mail.url: smtp://")
    assert "s3cret" not in str(caught.value)


@given(st.from_regex(MAIL_URL, fullmatch=True), st.text("abcXYZ019%_.-", min_size=20, max_size=30))
def test_no_repr_of_a_mail_url_shows_its_password(url: str, password: str) -> None:
    scheme, _, rest = url.partition("://")
    host = rest.rpartition("@")[2]
    assume(password not in host)
    shown = repr(MailSettings(url=f"{scheme}://apikey:{password}@{host}"))
    assert password not in shown
    assert host in shown


@pytest.mark.parametrize("secret", ["s3cret", "s3'cr\"et", "s3cret\\", "s3c=ret, url='x'"])
def test_no_repr_and_no_effective_file_shows_a_secret(secret: str) -> None:
    settings = Settings(
        blobs=BlobSettings(access_key="s3cme", secret_key=secret), callbacks=CallbackSettings(signing_secret=secret)
    )
    for text in (repr(settings), repr(settings.blobs), without_secrets(describe(settings))):
        assert "s3c" not in text and "s3'" not in text
        for name in ("access_key", "secret_key"):
            assert re.search(rf"{name} ?= ?['\"]\*\*\*['\"]", text)
        assert "100 GiB" in text or "107374182400" in text  # what follows a secret is still there


def test_the_proxys_secret_is_masked_where_settings_are_shown() -> None:
    settings = Settings(api=ApiSettings(proxy_secret="s3cret-of-the-proxy"))
    for text in (repr(settings), repr(settings.api), without_secrets(describe(settings))):
        assert "s3cret" not in text
        assert re.search(r"proxy_secret ?= ?['\"]\*\*\*['\"]", text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PUBLIC_URL", "carillon.example.com"), ("PUBLIC_URL", "https://a/b?c"), ("PUBLIC_URL", 'https://a/"><script>'),
        ("ALLOWED_HOSTS", "example.com:8080"), ("ALLOWED_HOSTS", "*.example.com"),
        ("ALLOWED_ORIGINS", "https://example.com/"), ("ALLOWED_ORIGINS", "*"), ("PROXY_SECRET", "short"),
    ],
)  # fmt: skip
def test_what_guards_cannot_compare_is_refused(name: str, value: str) -> None:
    with pytest.raises(Misconfigured, match=f"api.{name.lower()}"):
        load({f"CARILLON_API_{name}": value})


@pytest.mark.parametrize("between", [",", ", ", "\n"])
def test_keys_of_secrets_are_read_and_never_shown(tmp_path: Path, between: str) -> None:
    keys = [base64.b64encode(bytes([n]) * 32).decode() for n in range(2)]
    (tmp_path / "keys").write_text(between.join(keys) + "\n")
    settings = load({"CARILLON_PROVIDERS_SECRET_KEYS_FILE": str(tmp_path / "keys")})
    assert read_keys(settings.providers.secret_keys) == keys
    for text in (repr(settings), without_secrets(describe(settings)), repr(list_settings(settings))):
        assert [key for key in keys if key in text] == []
        assert re.search(r"secret_keys", text)


@pytest.mark.parametrize("keys", ["short", "a" * 44, "a" * 43 + "=b", "a" * 42 + "=="])
def test_a_key_of_secrets_that_is_none_is_refused_and_not_shown(keys: str) -> None:
    with pytest.raises(Misconfigured, match=r"providers\.secret_keys") as caught:
        load({"CARILLON_PROVIDERS_SECRET_KEYS": keys})
    assert keys not in str(caught.value)


def test_a_secret_that_nobody_gave_is_not_masked() -> None:
    assert 'secret_key = ""' in without_secrets(describe())
    assert "secret_key=''" in repr(Settings())


def test_sections_made_in_code_check_what_types_cannot_say() -> None:
    with pytest.raises(ValueError, match="trusted_proxies"):
        ApiSettings(trusted_proxies=("here",))
    with pytest.raises(ValueError, match="topics"):
        FeedbackSettings(topics="(")
    with pytest.raises(ValueError, match="lease_seconds"):
        SchedulerSettings(lease_seconds=4, tick_seconds=1)
    with pytest.raises(ValueError, match="job_retention_days: key_retention_hours at least"):
        SchedulerSettings(job_retention_days=0.9, key_retention_hours=24)
    for days in (0, 1):
        SchedulerSettings(job_retention_days=days, key_retention_hours=24)


def test_an_operator_is_shown_few_settings_first() -> None:
    shown = [line for line in describe(rare=False).splitlines() if " = " in line and not line.startswith("#")]
    every = [line for line in describe().splitlines() if " = " in line and not line.startswith("#")]
    assert len(shown) <= 55
    assert set(shown) < set(every)


def test_what_is_shown_first_is_a_settings_file_too(tmp_path: Path) -> None:
    (tmp_path / "first.toml").write_text(describe(rare=False))
    assert load({}, tmp_path / "first.toml") == Settings()
