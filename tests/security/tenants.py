"""Those who share the API: each with an app, a token that may use this app alone, and one of everything there is."""

import base64
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import asyncpg

from shared.accounts.rules.callers import LONGEST, WebSession, secret_digest
from shared.accounts.store_callers import session_codec
from shared.bus.rules.deliveries import (
    BusDeadLetter,
    DeathReason,
    DeliveryAttempt,
    DeliveryStatus,
    EventDelivery,
    delivery_id,
)
from shared.bus.rules.subscriptions import queue_of
from shared.bus.store_cuts import delivery_codec
from shared.bus.store_deliveries import letter_codec
from shared.clock.rules.schedules import schedule_id
from shared.drivers.secrets import KeyRing, read_keys
from shared.messages.barring import UnsubscribeLinks
from shared.messages.rules.answers import Channel
from shared.messages.rules.suppressions import listing_of
from tests.security import bodies
from tests.security.operations import Operation, Role
from tests.security.stores import Database
from tests.security.target import Target

ADMIN = {"x-forwarded-email": "admin@example.com"}
NOBODY: dict[str, str] = {}
UNKNOWN = {"authorization": f"Bearer carillon_{'x' * 43}"}


ROOT_KEY = "root-of-the-bus-that-is-attacked"


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def basic(secret: str) -> dict[str, str]:
    return {"authorization": f"Basic {base64.b64encode(f'{secret}:x'.encode()).decode()}"}


def shown_to(operation: Operation, headers: Mapping[str, str]) -> dict[str, str]:
    """How the same caller shows who they are to this operation: on the bus a token goes by basic auth, and admins are
    its root."""
    if operation.role is not Role.ON_BUS:
        return dict(headers)
    rest = {name: value for name, value in headers.items() if name not in {"authorization", "x-forwarded-email"}}
    if headers.get("x-forwarded-email") == ADMIN["x-forwarded-email"]:
        return rest | basic(ROOT_KEY)
    secret = headers.get("authorization", "").removeprefix("Bearer ")
    return rest | (basic(secret) if secret else {})


def who_may(operation: Operation, tenant: "Tenant") -> dict[str, str]:
    """The headers of somebody who may use it: the tenant, or an admin where it takes one."""
    needs_admin = operation.role is Role.ADMIN or operation.takes_root
    return shown_to(operation, ADMIN if needs_admin else tenant.headers)


PUBLISHING = "/bus/topics/{topic}/events"
"""Only who owns the topic publishes on it, whatever roles somebody has."""


def admin_or_client(operation: Operation, tenant: "Tenant") -> dict[str, str]:
    """The headers of an admin, and of the tenant where the operation takes clients of the bus alone."""
    takes_clients = operation.path == PUBLISHING or (operation.role is Role.ON_BUS and operation.least == "client")
    return shown_to(operation, tenant.headers if takes_clients else ADMIN)


@dataclass
class Tenant:
    """One of them. `ids` is what may stand in a path, by the name of the path's parameter, and `mark`: a word that all
    that is theirs alone bears, so that it is seen wherever it turns up."""

    mark: str
    headers: dict[str, str]
    ids: dict[str, str] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        return f"token:{self.ids['tokenId']}"


@dataclass
class Town:
    """Makes tenants, as an admin does."""

    target: Target
    database: Database
    push_database: str

    async def token(self, **fields: Any) -> tuple[str, str]:
        """The id and the secret of a new token."""
        made = await self._made("POST", "/tokens", {"name": "service", **fields}, ADMIN)
        return made["id"], made["token"]

    async def stranger(self) -> Tenant:
        """A known caller without any app."""
        id, secret = await self.token(allowedApps=[])
        return Tenant(f"m{secrets.token_hex(6)}", bearer(secret), {"tokenId": id})

    async def settler(self) -> Tenant:
        """A tenant with an app and its push table, and nothing else yet."""
        mark = f"m{secrets.token_hex(6)}"
        ids = {"mark": mark}
        app = await self._made("POST", "/apps", bodies.app(ids), ADMIN)
        await self._push_table(app["name"])
        token, secret = await self.token(name=mark, allowedApps=[app["id"]])
        tenant = Tenant(mark, bearer(secret), ids | {"appId": app["id"], "appName": app["name"], "tokenId": token})
        like = bodies.template(tenant.ids) | {"name": "like"}
        await self._made("POST", f"/apps/{app['id']}/templates", like, tenant.headers)
        return tenant

    async def tenant(self) -> Tenant:
        """A tenant with one of everything."""
        tenant = await self.settler()
        ids, mine = tenant.ids, tenant.headers
        app = f"/apps/{ids['appId']}"
        template = await self._made("POST", f"{app}/templates", bodies.template(ids), mine)
        job = await self._made("POST", f"{app}/jobs?template=like", bodies.job(ids), mine)
        group = await self._made("POST", f"{app}/jobs?template=like", bodies.localized(ids), mine)
        user = await self._made("POST", "/users", bodies.user(ids), ADMIN)
        credential = await self._made("POST", f"{app}/credentials", bodies.credential(ids), mine)
        ids |= {"credentialId": credential["id"]}
        await self._made("POST", f"{app}/messages", bodies.single(ids), mine)
        suppression = await self._made("POST", f"{app}/suppressions", bodies.suppression(ids), mine)
        schedule = await self._made("POST", "/schedules", bodies.keyed(ids), mine)
        tenant.ids |= {
            "templateId": template["id"],
            "jobId": job["id"],
            "groupId": group["jobGroupId"],
            "userId": user["id"],
            "credentialId": credential["id"],
            "suppression": suppression["id"],
            "token": self._link_token(ids["appId"]),
            "key": schedule["key"],
            "timestamp": bodies.FAR,
            "calendar": f"days-{secrets.token_hex(4)}",
            "path": "none/none.csv",
            "name": "swagger-ui.css",
            "queue": "push.mail",
            "messageId": "none~1",
            "address": "nobody@example.com",
            "topic": bodies.topic_of(mark_of=ids),
        }
        await self._made("PUT", f"/calendars/{tenant.ids['calendar']}", {"dates": ["2160-01-01"]}, mine)
        await self._subscribe(tenant)
        tenant.ids["uploadId"] = (await self._made("PUT", f"{app}/uploads?part=1", bodies.csv(ids), mine, 200))[
            "uploadId"
        ]
        tenant.ids["deliveryId"] = tenant.ids["letterId"] = self._dead_delivery(tenant)
        self._dead_letter(tenant)
        tenant.ids["sessionId"] = self._session(tenant)
        tenant.ids["messageId"] = self._message(tenant, job["id"])
        bulk = await self._made("POST", "/bulk-actions", bodies.bulk_action(tenant.ids), mine, 202)
        tenant.ids["actionId"] = bulk["id"]
        return tenant

    async def _subscribe(self, tenant: Tenant) -> None:
        """Have the tenant own a topic of the bus, and a subscription to it."""
        as_client = basic(tenant.headers["authorization"].removeprefix("Bearer "))
        for path, body, status in (
            (f"/topics/{tenant.ids['topic']}", bodies.published_event(tenant.ids), 200),
            ("/subscriber", bodies.published_subscription(tenant.ids), 204),
        ):
            answer = await self.target.call("POST", path, body, as_client)
            assert answer.status == status, f"{path}: {answer}"
        native = f"/bus/subscriptions/{tenant.ids['key']}"
        await self._made("PUT", native, bodies.native_subscription(tenant.ids), tenant.headers)

    def _link_token(self, app_id: str) -> str:
        """What stands in the link of a mail, which somebody has got."""
        keys = KeyRing(read_keys(self.target.environment["CARILLON_PROVIDERS_SECRET_KEYS"]))
        links = UnsubscribeLinks(keys, public_url="https://push.example.com")
        return links.url_of(listing_of(app_id, Channel.MAIL, "ana@example.com")).rpartition("/")[2]

    def _session(self, tenant: Tenant) -> str:
        """As one that the tenant's browser began."""
        now = datetime.now(UTC)
        session = WebSession(
            id=secret_digest(tenant.mark), namespace=tenant.namespace, token_digest=tenant.mark,
            began_at=now, seen_at=now, ends_at=now + LONGEST, agent=tenant.mark,
        )  # fmt: skip
        self.database.database["sessions"].insert_one(session_codec.document(session))
        return session.id

    def _dead_letter(self, tenant: Tenant) -> None:
        """Nobody but the scheduler makes one, and none runs here."""
        key = tenant.ids["key"]
        id = schedule_id(tenant.namespace, key)
        stored = self.database.database["schedules"].find_one({"_id": id})
        assert stored is not None
        letter = {
            "_id": tenant.ids["letterId"],
            "namespace": tenant.namespace,
            "key": key,
            "schedule_id": id,
            "generation": stored["generation"],
            "due": stored["created_at"],
            "died_at": stored["created_at"],
            "attempts": 5,
            "error": tenant.mark,
            "death": tenant.ids["letterId"],
        }
        self.database.database["dead_letters"].insert_one(letter)

    def _dead_delivery(self, tenant: Tenant) -> str:
        """Nobody but a worker makes one, and none runs here. The dead letter has the id of its delivery."""
        namespace, key, found = tenant.namespace, tenant.ids["key"], self.database.database
        stored = found["bus_subscriptions"].find_one({"namespace": namespace, "key": key})
        assert stored is not None
        queue, at = queue_of(stored["_id"], stored["generation"]), stored["created_at"]
        both: dict[str, Any] = {
            "id": delivery_id(queue, 1), "queue": queue, "sequence": 1, "count": 1, "size": 1, "first_at": at,
            "made": 1, "attempts": (DeliveryAttempt(at=at, ms=1, status=500, excerpt=tenant.mark),),
        }  # fmt: skip
        delivery = EventDelivery(status=DeliveryStatus.DEAD, cut_at=at, settled_at=at, **both)
        letter = BusDeadLetter(
            subscription=stored["_id"], namespace=namespace, key=key, reason=DeathReason.AGE, died_at=at,
            events=(b"1",), offsets=(("0", 1),), **both,
        )  # fmt: skip
        found["bus_deliveries"].insert_one(delivery_codec.document(delivery))
        found["bus_dead_letters"].insert_one(letter_codec.document(letter))
        return delivery.id

    def _message(self, tenant: Tenant, job_id: str) -> str:
        """Nobody but a worker makes one, and none runs here."""
        job = self.database.database["jobs"].find_one({"_id": job_id})
        assert job is not None
        message = {
            "_id": f"{job['incarnation']}.00000000.00000",
            "app_id": tenant.ids["appId"],
            "credential_id": tenant.ids["credentialId"],
            "to": bodies.QUERY["recipient"],
            "state": "failed",
            "detail": tenant.mark,
            "attempt": 1,
        }
        self.database.database["messages"].insert_one(message)
        return str(message["_id"])

    async def _push_table(self, app: str) -> None:
        connection = await asyncpg.connect(self.push_database)
        await connection.execute(
            f'CREATE TABLE "{app}_apns" (seq_id bigint PRIMARY KEY, user_id text, token text, locale text, '
            f"region text, tz text); INSERT INTO \"{app}_apns\" SELECT n, 'u' || n, 't' || n, 'en', 'BR', '-0300' "
            f'FROM generate_series(1, 10) n; CREATE INDEX ON "{app}_apns" (user_id)'
        )
        await connection.close()

    async def _made(self, method: str, path: str, body: object, headers: Mapping[str, str], status: int = 201) -> Any:
        answer = await self.target.call(method, path, body, headers)
        assert answer.status == status, f"{method} {path}: {answer}"
        return answer.json
