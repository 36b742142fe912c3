"""Apache Kafka as one process that is both broker and controller (KRaft), from jars that Maven fetches once."""

import asyncio
import base64
import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import CoordinationType
from aiokafka.errors import KafkaError

from tests.stack import certificates, places
from tests.stack.install import need_program
from tests.stack.maven import need_jars
from tests.stack.server import Command, Ports, Server, run_apart

_POM = Path(__file__).with_name("pom.xml")
_TOOLS = Path(__file__).with_name("Tools.java")
_SECONDS = 120.0
QUICK_VARIABLE = "CARILLON_TEST_KAFKA_QUICK"  # do not optimize for a long life: that costs more than it saves
PLAIN_USER, PLAIN_PASSWORD = "plain", "plain-password"
# Memory for the tests' loads; the rest is what Kafka's own start script says, less what a short life never needs.
_JVM = ("-Xmx768m", "-Xms256m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
        "-Xshare:auto", "-XX:-UsePerfData", "-Djava.awt.headless=true",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true")  # fmt: skip


class KafkaServer(Server):
    """The broker. Topics are made by whoever needs them; partitions default to 8.

    Who comes to the port `client` may do everything. The others ask who it is, and it may do what ACLs say: `tls` by
    password, `login` by password without TLS, `mutual` by certificate.
    """

    name = "kafka"
    port_names = ("client", "controller", "tls", "login", "mutual")

    def install(self) -> None:
        class_path()

    def prepare(self, ports: Ports) -> None:
        template = self._formatted(ports)
        shutil.copytree(template, self.data, dirs_exist_ok=True)

    def _formatted(self, ports: Ports) -> Path:
        """A formatted, empty data folder; made once, because it costs a whole JVM of start-up."""
        jars = need_jars(self.name, _POM)
        template = jars.with_name(jars.name + "-formatted")
        if not template.exists():
            with tempfile.TemporaryDirectory(dir=places.cache()) as folder:
                data = Path(folder) / "data"
                properties = Path(folder) / "server.properties"
                properties.write_text(_properties(ports, data))
                _java("kafka.tools.StorageTool", "format", "-t", _new_cluster_id(), "-c", str(properties))
                places.put(data, template)
        return template

    def command(self, ports: Ports) -> Command:
        properties = self.folder / "server.properties"
        properties.write_text(_properties(ports, self.data))
        java = need_program("java", "default-jre-headless")
        quick = ["-XX:TieredStopAtLevel=1"] if os.environ.get(QUICK_VARIABLE) else []
        return Command([java, *_JVM, *quick, "-cp", class_path(), "kafka.Kafka", str(properties)])

    def healthy(self, ports: Ports) -> bool:
        try:  # the client would log every refused connection
            socket.create_connection(("127.0.0.1", ports["client"]), timeout=1).close()
        except OSError:
            return False
        return run_apart(_serves(ports["client"]))

    def addresses(self, ports: Ports) -> dict[str, str]:
        return {
            "kafka_servers": f"127.0.0.1:{ports['client']}",
            "kafka_tls_servers": f"127.0.0.1:{ports['tls']}",
            "kafka_login_servers": f"127.0.0.1:{ports['login']}",
            "kafka_mutual_servers": f"127.0.0.1:{ports['mutual']}",
        }


def class_path() -> str:
    """The class path of Kafka's broker and tools; fetched by Maven the first time. Raises Missing."""
    need_program("java", "default-jre-headless")
    return f"{need_jars(KafkaServer.name, _POM)}{os.sep}*"


def run_tools(servers: str, *calls: Sequence[str]) -> None:
    """Call Kafka's own command-line tools, each by its class and its words, all in one JVM after the other."""
    words = [word for tool, *options in calls for word in (tool, "--bootstrap-server", servers, *options, "--then")]
    _java(str(_TOOLS), *words)


def throttle(servers: str, bytes_a_second: int | None) -> None:
    """Let all producers together send so many bytes a second to a broker, or as many as they like again."""
    change = f"producer_byte_rate={bytes_a_second}" if bytes_a_second else "producer_byte_rate"
    verb = "--add-config" if bytes_a_second else "--delete-config"
    entity = ("--entity-type", "clients", "--entity-default")
    _java("kafka.admin.ConfigCommand", "--bootstrap-server", servers, "--alter", verb, change, *entity)


def _java(*words: str) -> None:
    java = need_program("java", "default-jre-headless")
    command = [java, "-XX:TieredStopAtLevel=1", "-cp", class_path(), *words]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=_SECONDS
    )
    if done.returncode:
        raise RuntimeError(f"{words[0]} failed: {(done.stdout + done.stderr).strip()[-800:]}")


def _new_cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")


def _properties(ports: Ports, data: Path) -> str:
    client, controller = ports["client"], ports["controller"]
    secure = {"TLS": ports["tls"], "LOGIN": ports["login"], "MUTUAL": ports["mutual"]}
    listeners = "".join(f",{name}://127.0.0.1:{port}" for name, port in secure.items())
    files = certificates.ensure()
    return f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=CLIENT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}{listeners}
advertised.listeners=CLIENT://127.0.0.1:{client}{listeners}
listener.security.protocol.map=CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SASL_SSL,LOGIN:SASL_PLAINTEXT,MUTUAL:SSL
ssl.keystore.type=PEM
ssl.keystore.location={files.server}
ssl.truststore.type=PEM
ssl.truststore.location={files.ca}
listener.name.mutual.ssl.client.auth=required
ssl.principal.mapping.rules=RULE:^CN=(.*)$/$1/
sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256,PLAIN,OAUTHBEARER
{_logins("tls")}{_logins("login")}\
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
inter.broker.listener.name=CLIENT
controller.listener.names=CONTROLLER
log.dirs={data}
auto.create.topics.enable=false
num.partitions=8
default.replication.factor=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=8
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=8
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=16777216
"""


def _logins(listener: str) -> str:
    """How each mechanism knows its users: passwords of SCRAM lie in the cluster, tokens vouch for themselves."""
    security = "org.apache.kafka.common.security"
    plain = f'user_{PLAIN_USER}="{PLAIN_PASSWORD}"'
    modules = {
        "scram-sha-512": f"{security}.scram.ScramLoginModule required;",
        "scram-sha-256": f"{security}.scram.ScramLoginModule required;",
        "plain": f"{security}.plain.PlainLoginModule required {plain};",
        "oauthbearer": f"{security}.oauthbearer.OAuthBearerLoginModule required;",
    }
    prefix = f"listener.name.{listener}"
    return "".join(f"{prefix}.{mechanism}.sasl.jaas.config={module}\n" for mechanism, module in modules.items())


async def _serves(port: int) -> bool:
    """Whether the metadata name a broker (so its controller has let it in), and groups and transactions have
    coordinators. The broker creates their topics at the first question, and refuses until they exist."""
    client = AIOKafkaAdminClient(bootstrap_servers=f"127.0.0.1:{port}", request_timeout_ms=3000)
    try:
        async with asyncio.timeout(4):
            await client.start()
            described = await client.describe_cluster()
            for kind in CoordinationType:
                await client.find_coordinator("ready", kind)
    except (KafkaError, OSError, TimeoutError):
        return False
    finally:
        await client.close()
    return bool(described.get("brokers"))
