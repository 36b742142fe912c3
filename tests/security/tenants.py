"""Those who share the API: each with an app, a token that may use this app alone, and one of everything there is."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from shared.domain.clock.schedules import schedule_id
from shared.domain.messages.channels import Channel
from shared.domain.messages.unsubscribing import listing_of
from shared.flow.messages.unsubscribing import UnsubscribeLinks
from shared.secrets import KeyRing, read_keys
from tests.security import bodies
from tests.security.stores import Database
from tests.security.target import Target

ADMIN = {"x-forwarded-email": "admin@example.com"}
NOBODY: dict[str, str] = {}
UNKNOWN = {"authorization": f"Bearer carillon_{'x' * 43}"}


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


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
            "path": "none/none.csv",
            "name": "swagger-ui.css",
            "queue": "push.mail",
            "messageId": "none~1",
            "address": "nobody@example.com",
        }
        tenant.ids["uploadId"] = (await self._made("PUT", f"{app}/uploads?part=1", bodies.csv(ids), mine, 200))[
            "uploadId"
        ]
        tenant.ids["letterId"] = self._dead_letter(tenant)
        tenant.ids["messageId"] = self._message(tenant, job["id"])
        bulk = await self._made("POST", "/bulk-actions", bodies.bulk_action(tenant.ids), mine, 202)
        tenant.ids["actionId"] = bulk["id"]
        return tenant

    def _link_token(self, app_id: str) -> str:
        """What stands in the link of a mail, which somebody has got."""
        keys = KeyRing(read_keys(self.target.environment["CARILLON_PROVIDERS_SECRET_KEYS"]))
        links = UnsubscribeLinks(keys, public_url="https://push.example.com")
        return links.url_of(listing_of(app_id, Channel.MAIL, "ana@example.com")).rpartition("/")[2]

    def _dead_letter(self, tenant: Tenant) -> str:
        """Nobody but the scheduler makes one, and none runs here."""
        key = tenant.ids["key"]
        id = schedule_id(tenant.namespace, key)
        stored = self.database.database["schedules"].find_one({"_id": id})
        assert stored is not None
        letter = {
            "_id": secrets.token_hex(16),
            "namespace": tenant.namespace,
            "key": key,
            "schedule_id": id,
            "generation": stored["generation"],
            "due": stored["created_at"],
            "died_at": stored["created_at"],
            "attempts": 5,
            "error": tenant.mark,
        }
        self.database.database["dead_letters"].insert_one(letter)
        return str(letter["_id"])

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
            "FROM generate_series(1, 10) n"
        )
        await connection.close()

    async def _made(self, method: str, path: str, body: object, headers: Mapping[str, str], status: int = 201) -> Any:
        answer = await self.target.call(method, path, body, headers)
        assert answer.status == status, f"{method} {path}: {answer}"
        return answer.json
