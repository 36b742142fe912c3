"""An app, templates in two locales and devices to try a first job with. Made once; repeating it changes nothing.

The app and the templates go over HTTP, as a customer's would; the devices by COPY into the push table.
"""

import json
import logging
import shlex
from types import TracebackType
from typing import Any, Self

import httpx
from msgspec import Struct

from shared.audience.rules.audiences import table_name
from shared.core.errors import Refused, Unavailable
from shared.drivers.postgres import devices
from shared.push.rules.records import APNS

Object = dict[str, Any]

TEMPLATE = "welcome"
CONTEXT = {"name": "Ana"}
_PATIENCE_SECONDS = 15.0


class Customer:
    """Calls the API as one identity. Raises `Refused` for what the API refuses, `Unavailable` for what it does not
    answer."""

    def __init__(self, api: str, headers: dict[str, str]) -> None:
        self.api = api.rstrip("/")
        self.headers = headers
        # httpx would log a line per request, and polling makes many.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        # A kept connection may be closed by the API just when it is used again.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._http = httpx.AsyncClient(
            base_url=self.api,
            headers=headers,
            timeout=_PATIENCE_SECONDS,
            trust_env=False,
            follow_redirects=True,
            limits=limits,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def start(self, app_id: str, template: str, job: Object) -> Object:
        started: Object = await self.call("POST", f"/apps/{app_id}/jobs", params={"template": template}, json=job)
        return started

    async def job(self, app_id: str, job_id: str, **query: str) -> Object:
        found: Object = await self.call("GET", f"/apps/{app_id}/jobs/{job_id}", params=query)
        return found

    async def make_once(self, path: str, wanted: Object, *keys: str) -> Any:
        """The item of the list that has the wanted values at these keys; it is made if it is missing."""
        for item in await self.list_all(path):
            if all(item[key] == wanted[key] for key in keys):
                return item
        return await self.call("POST", path, json=wanted)

    async def list_all(self, path: str) -> list[Object]:
        found: list[Object] = []
        following: str | None = path
        while following:
            response = await self._send("GET", following)
            found += response.json()
            following = response.links.get("next", {}).get("url")
        return found

    async def call(self, method: str, path: str, **request: Any) -> Any:
        """The API's answer, read as JSON if it has a body."""
        response = await self._send(method, path, **request)
        return response.json() if response.content else None

    async def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            response = await self._http.request(method, path, **request)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unavailable(f"the API at {self.api} does not answer: {str(error) or type(error).__name__}") from error
        if response.is_error:
            raise Refused(f"{method} {path} was answered with {response.status_code}: {_reason(response)}")
        return response


def _reason(response: httpx.Response) -> str:
    try:
        problem = response.json()
        return str(problem.get("reason") or problem.get("detail") or problem)
    except (ValueError, AttributeError):
        return response.text[:200]


def headers_of(email: str, *, token: str = "", proxy_secret: str = "") -> dict[str, str]:
    """The headers that tell the API who is calling: a service by its token, or a person by an e-mail address."""
    if token:
        return {"authorization": f"Bearer {token}"}
    vouching = {"x-carillon-proxy-secret": proxy_secret} if proxy_secret else {}
    return {"x-forwarded-email": email} | vouching


class Seeded(Struct, frozen=True, kw_only=True):
    """The app and its things now. `devices` may be more than were asked for."""

    app_id: str
    app: str
    service: str
    devices: int


async def seed(customer: Customer, audience: str, *, app: str, service: str, count: int) -> Seeded:
    """Make what is missing of an app, its templates and `count` devices."""
    bundle_id = f"com.example.{''.join(filter(str.isalnum, app.lower())) or 'app'}"
    app_id = (await customer.make_once("/apps", {"name": app, "bundleId": bundle_id}, "name", "bundleId"))["id"]
    key = "alert" if service == APNS else "message"
    for locale, text in {"en": "Welcome, {{name}}!", "pt": "Boas-vindas, {{name}}!"}.items():
        template = {"name": TEMPLATE, "locale": locale, "defaults": {"name": "stranger"}, "body": {key: text}}
        await customer.make_once(f"/apps/{app_id}/templates", template, "name", "locale")
    there = await devices.top_up(audience, table_name(app, service), count)
    return Seeded(app_id=app_id, app=app, service=service, devices=there)


async def seed_and_tell(
    customer: Customer, audience: str, *, app: str, service: str, count: int, command: str = ""
) -> str:
    """Seed, and say what there is and how to go on: by `command`, which runs `carillon` where it finds the API without
    options, or by curl. Raises like `seed`."""
    seeded = await seed(customer, audience, app=app, service=service, count=count)
    return (
        f"App {seeded.app} ({seeded.app_id}) has the template {TEMPLATE} in en and pt,\n"
        f"and {seeded.devices:,} devices in {table_name(app, service)}.\n\n"
        f"{_by_command(command, seeded)}{first_steps(customer, seeded, key='first-job')}"
    )


def _by_command(command: str, seeded: Seeded) -> str:
    if not command:
        return ""
    kind = "" if seeded.service == APNS else f" --service {seeded.service}"
    values = " ".join(f"--set {name}={value}" for name, value in CONTEXT.items())
    create = f"{command} jobs create --app {seeded.app} --template {TEMPLATE}{kind} {values} --watch"
    return f"Start a job, and watch it:\n  {create}\n\nOr by curl. "


def first_steps(customer: Customer, seeded: Seeded, *, key: str = "") -> str:
    """Commands that start a job, look at the app's jobs and hold one; $JOB stands for the id in the first one's answer.

    With a `key`, repeating the first one shows the first job and starts no other.
    """
    email = customer.headers.get("x-forwarded-email")
    header = f'-H "x-forwarded-email: {email}"' if email else '-H "authorization: Bearer $TOKEN"'
    jobs = f"{customer.api}/apps/{seeded.app_id}/jobs"
    once = f"-H {shlex.quote(f'Idempotency-Key: {key}')} " if key else ""
    data = f"-d {shlex.quote(json.dumps({'service': seeded.service, 'context': CONTEXT}))}"
    return (
        f'Start a job:\n  curl -s {once}{data} {header} "{jobs}?template={TEMPLATE}"\n\n'
        f'Look how it goes:\n  curl -s {header} "{jobs}"\n\n'
        "Hold one, by the id that was answered (resume and stop likewise):\n"
        f'  curl -s -X PUT {header} "{jobs}/$JOB/pause"'
    )
