"""An app, templates in two locales and devices to try a first job with. Made once; repeating it changes nothing.

The app and the templates go over HTTP, as a customer's would; the devices by COPY into the push table.
"""

import json
import shlex

from msgspec import Struct

from services.commands.seed.customer import Customer, Object
from shared.audience import devices
from shared.domain.audience.audiences import table_name
from shared.domain.push.records import APNS

TEMPLATE = "welcome"
CONTEXT = {"name": "Ana"}


class Target(Struct, frozen=True, kw_only=True):
    """The target: the API, the e-mail address or service's token that calls it, and the push database."""

    api: str
    audience: str
    email: str = ""
    token: str = ""
    proxy_secret: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """The headers that tell the API who is calling."""
        if self.token:
            return {"authorization": f"Bearer {self.token}"}
        vouching = {"x-carillon-proxy-secret": self.proxy_secret} if self.proxy_secret else {}
        return {"x-forwarded-email": self.email} | vouching

    @property
    def shown_header(self) -> str:
        """The same for a command line in double quotes, without the secret."""
        return "authorization: Bearer $TOKEN" if self.token else f"x-forwarded-email: {self.email}"


class Seeded(Struct, frozen=True, kw_only=True):
    """The app and its things now. `devices` may be more than were asked for."""

    app_id: str
    app: str
    service: str
    devices: int


async def seed(customer: Customer, audience: str, *, app: str, service: str, count: int) -> Seeded:
    """Make what is missing of an app, its templates and `count` devices.

    Raises:
        Refused: the API does not allow it, or the app's push table is somebody's own.
        Unavailable: the API or the push database does not answer.
    """
    seeded_app = await customer.app(app)
    await customer.templates(seeded_app["id"], templates(service))
    there = await devices.top_up(audience, table_name(app, service), count)
    return Seeded(app_id=seeded_app["id"], app=app, service=service, devices=there)


def templates(service: str) -> list[Object]:
    """The same message in English and Portuguese, in the shape that the service's apps understand."""
    key = "alert" if service == APNS else "message"
    texts = {"en": "Welcome, {{name}}!", "pt": "Boas-vindas, {{name}}!"}
    return [
        {"name": TEMPLATE, "locale": locale, "defaults": {"name": "stranger"}, "body": {key: text}}
        for locale, text in texts.items()
    ]


def job_body(service: str) -> Object:
    """A first job, to everybody."""
    return {"service": service, "context": CONTEXT}


def first_steps(target: Target, seeded: Seeded, *, key: str = "") -> str:
    """Commands that start a job, look at the app's jobs and hold one; $JOB stands for the id in the first one's answer.

    With a `key`, repeating the first one shows the first job and starts no other.
    """
    jobs = f"/apps/{seeded.app_id}/jobs"
    data = f"-d {shlex.quote(json.dumps(job_body(seeded.service)))}"
    more = [f"-H {shlex.quote(f'Idempotency-Key: {key}')}"] if key else []
    commands = {
        "Start a job:": _curl(target, f"{jobs}?template={TEMPLATE}", *more, data),
        "Look how it goes:": _curl(target, jobs),
        "Hold one, by the id that was answered (resume and stop likewise):": _curl(
            target, f"{jobs}/$JOB/pause", "-X PUT"
        ),
    }
    return "\n\n".join(f"{what}\n  {command}" for what, command in commands.items())


def _curl(target: Target, path: str, *options: str) -> str:
    return " ".join(["curl -s", *options, f'-H "{target.shown_header}"', f'"{target.api}{path}"'])


async def seed_and_tell(target: Target, *, app: str, service: str, count: int) -> str:
    """Seed, and say what there is and how to go on. Raises like `seed`."""
    async with Customer(target.api, target.headers) as customer:
        seeded = await seed(customer, target.audience, app=app, service=service, count=count)
    return (
        f"App {seeded.app} ({seeded.app_id}) has the template {TEMPLATE} in en and pt,\n"
        f"and {seeded.devices:,} devices in {table_name(app, service)}.\n\n"
        f"{first_steps(target, seeded, key='first-job')}"
    )
