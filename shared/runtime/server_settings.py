"""The servers that Carillon uses: their settings, and the parts that every section of the settings is made of."""

import ipaddress
import re
from collections.abc import Iterable
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from shared.runtime.private import without_secrets

RARELY = "rarely"
# No quotes and no blanks: `without_secrets` finds every password that is there. They can be percent-encoded.
Url = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9+.-]*://[^\s'\"]*\Z")]
HttpUrl = Annotated[str, Meta(pattern=r"^(https?://[^/\s'\"][^\s'\"]*)?\Z")]
PublicUrl = Annotated[
    str, Meta(pattern=r"^(https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?(/[A-Za-z0-9._~-]+)*/?)?\Z")
]
Origin = Annotated[str, Meta(pattern=r"^https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?\Z")]
HostName = Annotated[str, Meta(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)\Z")]
Folder = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}(/[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}){0,5}\Z")]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,200}\Z")]
Seconds = Annotated[float, Meta(ge=0.05, le=86_400)]
Count = Annotated[int, Meta(ge=1, le=10_000)]
Mailbox = Annotated[str, Meta(pattern=r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,189}\Z")]
Port = Annotated[int, Meta(ge=0, le=65_535)]


def says(sentence: str) -> Meta:
    """The sentence that the manual prints above a field."""
    return Meta(description=sentence)


def rarely(sentence: str) -> Meta:
    """The same for a field that few deployments change: `carillon config` shows it when it is asked for all."""
    return Meta(description=sentence, extra={RARELY: True})


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of the settings. Its repr masks passwords, so that no log or traceback can show one."""

    def __repr__(self) -> str:
        fields = (without_secrets(f"{name}={getattr(self, name)!r}") for name in self.__struct_fields__)
        return f"{type(self).__name__}({', '.join(fields)})"


MAIL_SERVERS = "smtp://user:password@host:587, smtps://… or sendgrid://apikey:<key>@api.sendgrid.com"
# So strict that `without_secrets` finds every password, and every key: it stands where passwords do.
MAIL_URL = re.compile(
    r"""(smtps?://([^\s:@/?\#'"]+:[^\s@/?\#'"]+@)? | sendgrid://[^\s:@/?\#'"]*:[^\s@/?\#'"]+@)
    (\[[0-9A-Fa-f:]+\] | [A-Za-z0-9._-]+) (:[0-9]{1,5})? /? (\?tls=(required|offered|never))?""",
    re.VERBOSE,
)
_KEY = "[A-Za-z0-9+/]{43}="


def check_networks(name: str, networks: Iterable[str]) -> None:
    for network in networks:
        try:
            ipaddress.ip_network(network)
        except ValueError:
            raise ValueError(f"{name}: {network!r} is not a network, as in 10.0.0.0/8") from None


def check_key_file(certificate_file: str, key_file: str) -> None:
    if key_file and not certificate_file:
        raise ValueError("key_file: its certificate_file is missing")


class TlsSettings(Section, frozen=True):
    """Encrypted connections to the servers: of every URL that asks for TLS and names no files of its own.

    The files are read again when they change.
    """

    ca_file: Annotated[
        str, says("The authorities of the servers' certificates (PEM, one or several); empty: those of this machine.")
    ] = ""
    certificate_file: Annotated[str, rarely("Our own certificate (PEM), for servers that ask for one.")] = ""
    key_file: Annotated[str, rarely("Private key (PEM). Empty: the key is in certificate_file.")] = ""
    required: Annotated[
        Literal["nowhere", "off_loopback"],
        says(
            "Refuse to start with connections that are not encrypted and verified, or with keys and addresses from "
            "examples."
        ),
    ] = "nowhere"

    def __post_init__(self) -> None:
        check_key_file(self.certificate_file, self.key_file)


NO_FILES = TlsSettings()
"""Whom this machine trusts, and no certificate of ours."""


class StoreSettings(Section, frozen=True):
    """MongoDB: the only truth about apps, templates, jobs and batches."""

    url: Annotated[Url, says("MongoDB's address, with the name of the database.")] = (
        "mongodb://127.0.0.1:27017/carillon"
    )


class BrokerSettings(Section, frozen=True):
    """RabbitMQ: carries tasks to workers."""

    url: Annotated[Url, says("RabbitMQ's address, with the virtual host.")] = (
        "amqp://guest:guest@127.0.0.1:5672/carillon"
    )
    management_url: Annotated[
        Url, says("Its management API, by which `carillon init` makes the virtual host and the policies.")
    ] = "http://guest:guest@127.0.0.1:15672"
    management_public_url: Annotated[
        PublicUrl,
        says("The address of RabbitMQ's management page for people, with its path: the dashboard links queues to it."),
    ] = ""
    publish_timeout_seconds: Annotated[Seconds, rarely("How long a publish waits for its confirm.")] = 10.0


class StreamSettings(Section, frozen=True):
    """Kafka: takes the records."""

    url: Annotated[
        Url,
        says(
            "Kafka's address; several brokers separated by commas. With TLS and a login as in "
            "kafka+ssl://user:password@host:9093?mechanism=scram-sha-512, special characters percent-encoded."
        ),
    ] = "kafka://127.0.0.1:9092"
    topic_template: Annotated[
        str,
        Meta(pattern=r"^[A-Za-z0-9._-]*%s[A-Za-z0-9._-]*%s[A-Za-z0-9._-]*\Z"),
        says("The name of a push topic; the first %s is the app's name, the second the service."),
    ] = "push-%s_%s-massive"
    push_topic_partitions: Annotated[Count, says("Partitions of a push topic that Carillon makes.")] = 8
    ledger_topic: Annotated[
        Name,
        rarely("The topic whose partitions bear the markers of sent batches. It holds no records; never delete it."),
    ] = "carillon.ledger"
    ledger_partitions: Annotated[
        int,
        Meta(ge=32, le=1_000),
        rarely("Its partitions: one for each chain of a job at least; they cannot become fewer."),
    ] = 64
    replication_factor: Annotated[
        int, Meta(ge=1, le=9), says("Copies of each partition of a topic that Carillon makes; 3 in production.")
    ] = 1
    transaction_timeout_seconds: Annotated[
        float, Meta(ge=1, le=900), rarely("When the broker aborts the transaction of a worker that fell silent.")
    ] = 30.0
    request_timeout_seconds: Annotated[Seconds, rarely("How long one request waits for its answer.")] = 10.0
    compression: Annotated[
        Literal["none", "gzip", "lz4", "zstd"],
        rarely("How records are compressed on their way and on the broker's disk."),
    ] = "none"
    max_record_bytes: Annotated[
        int,
        Meta(ge=1_000, le=100_000_000),
        says("A larger record fails its recipient; at most the broker's own limit."),
    ] = 1_000_000
    marker_retention_days: Annotated[
        float,
        Meta(ge=0.01, le=3650),
        rarely(
            "At most the brokers' offsets.retention.minutes, in days: workers refuse brokers that keep less. A batch "
            "that was owned for half of it is not sent again."
        ),
    ] = 7.0


class AudienceSettings(Section, frozen=True):
    """PostgreSQL: the push tables, one row a device."""

    url: Annotated[Url, says("PostgreSQL's address, with the database.")] = (
        "postgresql://carillon:carillon@127.0.0.1:5432/push"
    )
    pool_size: Annotated[Count, rarely("Connections that a process opens at most.")] = 10
    statement_timeout_seconds: Annotated[Seconds, rarely("When a statement is given up.")] = 60.0


class BlobSettings(Section, frozen=True):
    """S3, or a folder: files with audiences, and those that tell who was held out."""

    url: Annotated[
        Url, says("s3:// and the bucket for uploads and control groups; or file:// and the path of a folder.")
    ] = "s3://carillon"
    endpoint_url: Annotated[HttpUrl, says("The address of an S3 that is not AWS: MinIO, Ceph and others.")] = ""
    public_endpoint_url: Annotated[
        HttpUrl, says("S3's address for callers, in upload URLs; empty: the endpoint_url.")
    ] = ""
    region: Annotated[str, says("The region of the buckets; empty: as the environment says.")] = ""
    access_key: Annotated[
        str, says("The access key; empty: from where AWS's own tools take it, the role of the machine included.")
    ] = ""
    secret_key: Annotated[str, says("Its secret.")] = ""
    allowed_buckets: Annotated[tuple[str, ...], says("Further buckets that a csvPath may name.")] = ()
    upload_folder: Annotated[Folder, rarely("The folder of the bucket for uploaded files.")] = "jobs"
    control_group_folder: Annotated[Folder, rarely("The folder of the bucket for the files of control groups.")] = (
        "control-groups"
    )
    max_file_bytes: Annotated[
        int, Meta(ge=1, le=5 * 2**40), rarely("A job over a larger file is refused; 100 GiB unless changed.")
    ] = 100 * 2**30
    timeout_seconds: Annotated[Seconds, rarely("How long a question may take, repeated attempts included.")] = 10.0


class MailSettings(Section, frozen=True):
    """E-mails about jobs, to their makers."""

    url: Annotated[
        str,
        says(f"The server: {MAIL_SERVERS}, what is special in a password percent-encoded; empty: no mail is sent."),
    ] = ""
    sender_name: Annotated[
        str, Meta(pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*\Z"), rarely("The sender's name in mails.")
    ] = "Carillon"
    sender_address: Annotated[Mailbox, says("The address they come from; your mail server must know it.")] = (
        "carillon@localhost"
    )
    addressees: Annotated[
        tuple[Mailbox, ...], says("Addresses that get every mail, besides the creator of the job.")
    ] = ()
    blacklist: Annotated[
        tuple[str, ...], rarely("The creator of a job gets no mail if their address contains one of these texts.")
    ] = ()
    message_id_domain: Annotated[
        str,
        Meta(pattern=r"^([A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*)?\Z"),
        rarely("The domain in each mail's Message-ID; empty: that of the sender's address."),
    ] = ""
    timeout_seconds: Annotated[Seconds, rarely("How long sending one mail may take, connecting and all.")] = 30.0

    def __post_init__(self) -> None:
        if self.url and not MAIL_URL.fullmatch(self.url):
            raise ValueError(f"url: {MAIL_SERVERS}, what is special in a password percent-encoded")


class ProviderSettings(Section, frozen=True):
    """Provider accounts (credentials): how they are kept, and how they are called."""

    secret_keys: Annotated[
        str,
        Meta(pattern=rf"^\s*({_KEY}([\s,]+{_KEY})*)?\s*\Z"),
        rarely(
            "Keys for the secrets of credentials, parted by commas; `openssl rand -base64 32` makes one. The first "
            "seals what comes, all open what is there; empty: no credential with a secret can be made."
        ),
    ] = ""
    call_seconds: Annotated[Seconds, rarely("How long a call of a provider may take, connecting and all.")] = 10.0
    allowed_networks: Annotated[
        tuple[str, ...], rarely("Private networks (CIDR) in which providers may lie all the same.")
    ] = ()
    sandbox_file: Annotated[
        str, rarely("The file to which credentials of the kind `sandbox` write; empty: this kind is refused.")
    ] = ""
    batches_in_flight: Annotated[
        int, Meta(ge=1, le=1_000), rarely("How many batches of messages a worker has in hand; most of them wait.")
    ] = 400
    waiting_singles: Annotated[
        int,
        Meta(ge=1, le=10_000_000),
        rarely("Single messages of one namespace that may be due and wait; more are a 429. Later ones do not count."),
    ] = 10_000
    late_ms: Annotated[
        int, Meta(ge=1, le=1_000), rarely("How late a call may begin; alike in all processes, as are the next two.")
    ] = 8
    clock_ms: Annotated[
        int, Meta(ge=1, le=1_000), rarely("How well a process must know the database's time to send anything.")
    ] = 5
    redact_days: Annotated[
        float,
        Meta(ge=0.0001, le=3_650),
        rarely("After how long messages of a job that has ended forget their recipients and what providers said."),
    ] = 30.0
    ledger_days: Annotated[
        float,
        Meta(ge=0.0001, le=3_650),
        rarely("After how long they are forgotten, and a job cannot be retried any more; its figures stay."),
    ] = 180.0
    network_ms: Annotated[
        int, Meta(ge=1, le=1_000), rarely("By how much the way to a provider may vary. It costs as much of the rate.")
    ] = 7

    def __post_init__(self) -> None:
        check_networks("allowed_networks", self.allowed_networks)


class TracingSettings(Section, frozen=True):
    """OpenTelemetry's traces: what took how long, on whose behalf. It needs the extra `otel`, which the image has."""

    endpoint: Annotated[
        HttpUrl,
        rarely("A collector's OTLP over HTTP, as in http://collector:4318; empty: nothing is traced, or even loaded."),
    ] = ""
    ratio: Annotated[
        float,
        Meta(ge=0, le=1),
        rarely("The share of requests and of the clock's looks that is recorded, where no caller has decided it."),
    ] = 0.01
    records: Annotated[
        Literal["off", "on"],
        rarely("Whether the records of pushes that are recorded bear a header `traceparent`, of 70 bytes: off or on."),
    ] = "off"

    @property
    def collector(self) -> str:
        bare = urlsplit(self.endpoint).path in {"", "/"}
        return self.endpoint.rstrip("/") + "/v1/traces" if bare else self.endpoint
