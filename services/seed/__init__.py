"""An app, templates in two locales and devices to try a first job with. Made once; repeating it changes nothing.

The app and the templates go over HTTP, as a customer's would; the devices by COPY into the push table.
"""

import json
import shlex

from msgspec import Struct

from services.seed.customer import Customer, Object
from shared.audience import devices
from shared.domain.audiences import table_name
from shared.domain.jobs import Service

TEMPLATE = "like"
CONTEXT = {"user": "Ana", "thing": "town"}


class Target(Struct, frozen=True, kw_only=True):
    """Where to seed: the API, as whom to call it, and the push database."""

    api: str
    headers: dict[str, str]
    audience: str


class Seeded(Struct, frozen=True, kw_only=True):
    """What is there now. `devices` may be more than were asked for."""

    app_id: str
    app: str
    service: Service
    devices: int


async def seed(customer: Customer, audience: str, *, app: str, service: Service, count: int) -> Seeded:
    """See to an app, its templates and at least `count` devices.

    Raises:
        Refused: the API does not allow it, or the app's push table is somebody's own.
        Unavailable: the API or the push database does not answer.
    """
    made = await customer.app(app)
    await customer.templates(made["id"], templates(service))
    there = await devices.top_up(audience, table_name(app, service), count)
    return Seeded(app_id=made["id"], app=app, service=service, devices=there)


def templates(service: Service) -> list[Object]:
    """The same message in English and Portuguese, in the shape that the service's apps understand."""
    key = "alert" if service is Service.APNS else "message"
    texts = {"en": "{{user}} liked your {{thing}}", "pt": "{{user}} curtiu: {{thing}}"}
    return [
        {"name": TEMPLATE, "locale": locale, "defaults": {"user": "Somebody"}, "body": {key: text}}
        for locale, text in texts.items()
    ]


def job_body(service: Service) -> Object:
    """A first job, to everybody."""
    return {"service": service.value, "context": CONTEXT}


def first_curl(target: Target, seeded: Seeded) -> str:
    """The call that starts a first job."""
    return _curl(
        target,
        f"/apps/{seeded.app_id}/jobs?template={TEMPLATE}",
        "-X POST",
        f"-d {shlex.quote(json.dumps(job_body(seeded.service)))}",
    )


def second_curl(target: Target, seeded: Seeded) -> str:
    """The call that shows how the app's jobs stand."""
    return _curl(target, f"/apps/{seeded.app_id}/jobs")


def _curl(target: Target, path: str, *options: str) -> str:
    headers = (f"-H {shlex.quote(f'{name}: {value}')}" for name, value in target.headers.items())
    return " ".join(["curl -s", *options, *headers, shlex.quote(f"{target.api}{path}")])


async def seed_and_tell(target: Target, *, app: str, service: Service, count: int) -> str:
    """Seed, and say what there is and how to go on. Raises like `seed`."""
    async with Customer(target.api, target.headers) as customer:
        seeded = await seed(customer, target.audience, app=app, service=service, count=count)
    return (
        f"App {seeded.app} ({seeded.app_id}) has the template {TEMPLATE} in en and pt,\n"
        f"and {seeded.devices:,} devices in {table_name(app, service)}.\n\n"
        f"Start a first job:\n\n  {first_curl(target, seeded)}\n\n"
        f"Look how it goes:\n\n  {second_curl(target, seeded)}"
    )
