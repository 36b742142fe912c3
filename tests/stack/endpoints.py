"""Where the servers of the stack are."""

import msgspec

BUCKET = "carillon"
"""Made by whoever first puts something into it: the server forgets all when it ends."""


class MissingPart(LookupError):
    """A test asked for a server that this machine does not have; the text says why."""


class Endpoints(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of the stack. Asking for one whose server is missing raises MissingPart.

    `addresses` holds what there is by attribute name, `missing` the reason by server name, `pids` the servers'
    processes as they were when this was made (a restart changes them).
    """

    addresses: dict[str, str]
    missing: dict[str, str]
    pids: dict[str, int]

    @property
    def mongo_url(self) -> str:
        """mongodb://127.0.0.1:PORT"""
        return self._address("mongo", "mongo_url")

    @property
    def rabbit_url(self) -> str:
        """amqp://guest:guest@127.0.0.1:PORT/"""
        return self._address("rabbitmq", "rabbit_url")

    @property
    def rabbit_management_url(self) -> str:
        """http://guest:guest@127.0.0.1:PORT, without a path"""
        return self._address("rabbitmq", "rabbit_management_url")

    @property
    def postgres_url(self) -> str:
        """postgresql://postgres@127.0.0.1:PORT/postgres"""
        return self._address("postgres", "postgres_url")

    @property
    def kafka_servers(self) -> str:
        """127.0.0.1:PORT"""
        return self._address("kafka", "kafka_servers")

    @property
    def kafka_tls_servers(self) -> str:
        """127.0.0.1:PORT, TLS with a login"""
        return self._address("kafka", "kafka_tls_servers")

    @property
    def kafka_login_servers(self) -> str:
        """127.0.0.1:PORT, a login without TLS"""
        return self._address("kafka", "kafka_login_servers")

    @property
    def kafka_mutual_servers(self) -> str:
        """127.0.0.1:PORT, TLS with a client's certificate"""
        return self._address("kafka", "kafka_mutual_servers")

    @property
    def rabbit_tls_address(self) -> str:
        """127.0.0.1:PORT"""
        return self._address("rabbitmq", "rabbit_tls_address")

    @property
    def rabbit_management_tls_address(self) -> str:
        """127.0.0.1:PORT"""
        return self._address("rabbitmq", "rabbit_management_tls_address")

    @property
    def s3_url(self) -> str:
        """http://127.0.0.1:PORT; any credentials"""
        return self._address("s3", "s3_url")

    def environment(self, store: str, broker: str, push_database: str) -> dict[str, str]:
        """The settings that lead a process of Carillon to these servers: the URLs of one database, one virtual host and
        one push database."""
        return {
            "CARILLON_STORE_URL": store,
            "CARILLON_BROKER_URL": broker,
            "CARILLON_BROKER_MANAGEMENT_URL": self.rabbit_management_url,
            "CARILLON_STREAM_URL": f"kafka://{self.kafka_servers}",
            "CARILLON_AUDIENCE_URL": push_database,
            "CARILLON_BLOBS_URL": f"s3://{BUCKET}",
            "CARILLON_BLOBS_ENDPOINT_URL": self.s3_url,
            "CARILLON_BLOBS_REGION": "us-east-1",
            "CARILLON_BLOBS_ACCESS_KEY": "any",
            "CARILLON_BLOBS_SECRET_KEY": "any",
        }

    def _address(self, server: str, name: str) -> str:
        if server in self.missing:
            raise MissingPart(f"{server}: {self.missing[server]}")
        if name not in self.addresses:
            raise MissingPart(f"{server}: not asked for")
        return self.addresses[name]
