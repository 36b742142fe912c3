"""The brokers' addresses and the login, with which every client of the driver is made; and what all of them share:
deadlines, translated errors and bounded ends.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import KafkaConnectionError, KafkaError
from msgspec import Struct
from msgspec.structs import replace

from shared.core.errors import Invalid, Unavailable
from shared.runtime.server_settings import NO_FILES, TlsSettings
from shared.runtime.tls import client_context

STOP_SECONDS = 3.0
_PATIENCE_SECONDS = 0.1


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise `Unavailable` for errors of Kafka, the network and time-outs."""
    try:
        yield
    except (KafkaError, OSError, TimeoutError) as error:
        raise Unavailable(f"Kafka: {type(error).__name__}: {error}") from error


@asynccontextmanager
async def answer_within(seconds: float) -> AsyncIterator[None]:
    """Raise `Unavailable` for errors of Kafka and the network, and after `seconds`."""
    with translate_errors():
        async with asyncio.timeout(seconds):
            yield


async def stop(client: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    """Stop a client within `STOP_SECONDS`, or abandon it: a broker may let it hang."""
    with suppress(Exception):
        async with asyncio.timeout(STOP_SECONDS):
            await client.stop()
            return
    if isinstance(client, AIOKafkaProducer):
        await abandon(client)


async def abandon(producer: AIOKafkaProducer) -> None:
    """End a producer without waiting for its records.

    Otherwise it would retry for ever, and send the records long after the callers were told that they may be lost. The
    driver has no method for this.
    """
    producer._closed = True  # noqa: SLF001
    sender = producer._sender.sender_task if producer._sender else None  # noqa: SLF001
    with suppress(Exception):
        async with asyncio.timeout(STOP_SECONDS):
            # The first cancellation still waits for the records under way; the second one ends that wait.
            while sender is not None and not sender.done():
                sender.cancel()
                await asyncio.sleep(_PATIENCE_SECONDS)
    with suppress(Exception):
        async with asyncio.timeout(STOP_SECONDS):
            await producer.client.close()


_FIELD = "stream.url"
_SHAPE = "needs kafka://host:port[,host:port] or kafka+ssl://user:password@host:port[,host:port]"
_BY_PASSWORD = {"scram-sha-512": "SCRAM-SHA-512", "scram-sha-256": "SCRAM-SHA-256", "plain": "PLAIN"}
_BY_TOKEN = "oauthbearer"  # the mechanism's name
_DEFAULT = "scram-sha-512"
_FILES = frozenset({"ca_file", "certificate_file", "key_file"})
_OPTIONS = _FILES | {"mechanism", "token_file"}


class KafkaServers(Struct, frozen=True):
    """Addresses, and the driver's options of security."""

    addresses: str
    security: Mapping[str, Any] = {}

    @classmethod
    def read(cls, url: str, tls: TlsSettings) -> Self:
        """Read the URL. Raises `Invalid`, which repeats nothing of the URL because it may contain a password."""
        try:
            parts = urlsplit(url)
            options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        except ValueError:
            raise Invalid(_SHAPE, field=_FIELD) from None
        login, _, addresses = parts.netloc.rpartition("@")
        if parts.scheme not in {"kafka", "kafka+ssl"} or not addresses or parts.path.strip("/") or parts.fragment:
            raise Invalid(_SHAPE, field=_FIELD)
        if unknown := options.keys() - _OPTIONS:
            raise Invalid(f"{min(unknown)}: one of {', '.join(sorted(_OPTIONS))}", field=_FIELD)
        encrypted = parts.scheme == "kafka+ssl"
        security = _login(login, options)
        protocol = f"{'SASL_' if security else ''}{('SSL' if encrypted else 'PLAINTEXT')}"
        files = {name: options[name] for name in _FILES & options.keys()}
        context = {"ssl_context": client_context(replace(NO_FILES, **files) if files else tls)} if encrypted else {}
        return cls(addresses, {"security_protocol": protocol, **security, **context})

    def options(self, client_id: str) -> dict[str, Any]:
        return {"bootstrap_servers": self.addresses, "client_id": client_id, **self.security}

    async def find_fault(self, client_id: str) -> str:
        """Return why the first broker refuses the connection, or an empty string: the driver logs its reason and drops
        it."""
        host, port, _ = collect_hosts(self.addresses, randomize=False)[0]
        try:
            connection = await create_conn(host, port, client_id=client_id, **self.security)
        except (KafkaError, OSError, TimeoutError, ValueError) as error:
            return str(error)
        await connection.close()
        return ""

    def __repr__(self) -> str:
        return f"KafkaServers({self.addresses})"


def _login(login: str, options: Mapping[str, str]) -> dict[str, Any]:
    mechanism = options.get("mechanism", _DEFAULT if login else "").lower()
    user, _, password = (unquote(word) for word in login.partition(":"))
    if mechanism == _BY_TOKEN and options.get("token_file"):
        return {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": TokenFile(options["token_file"])}
    if mechanism == _BY_TOKEN:
        raise Invalid("mechanism=oauthbearer needs token_file, the path of a file with a token", field=_FIELD)
    if not mechanism:
        return {}
    if mechanism not in _BY_PASSWORD:
        raise Invalid(f"mechanism is one of {', '.join([*_BY_PASSWORD, _BY_TOKEN])}", field=_FIELD)
    if not user or not password:
        raise Invalid(f"mechanism={mechanism} needs a user and a password", field=_FIELD)
    return {
        "sasl_mechanism": _BY_PASSWORD[mechanism],
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


class TokenFile(AbstractTokenProvider):
    """A token from a file that another program keeps fresh; it is read for each connection."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    async def token(self) -> str:
        try:
            return (await asyncio.to_thread(self._path.read_text, "ascii")).strip()
        except (OSError, ValueError) as error:
            raise KafkaConnectionError(f"no token in {self._path}: {error}") from error
