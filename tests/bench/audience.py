"""The audience and the message of a benchmark.

A token begins with the number of its device, so that whoever reads the records can tell the devices apart; the rest is
a digest, because real tokens and user ids do not compress.
"""

import uuid
from datetime import UTC, datetime

from msgspec.structs import replace

from shared.accounts.rules.apps import App
from shared.audience.rules.audiences import KeyRange, table_name
from shared.jobs.rules.jobs import Job, Plan
from shared.jobs.rules.templates import Template
from shared.push.rules.records import APNS
from shared.push.rules.rendering import Renderer
from tests.bench.place import execute
from tests.e2e.house import House

RECORD_BYTES = 389
KEPT = {"region": "BR"}
"""Filters that keep five of six devices, by a column without an index."""


async def fill(house: House, devices: int, *, tz: str = "'-0300'") -> None:
    """Give the house's app its push table, and a template whose records have `RECORD_BYTES` bytes. `tz` is an
    expression of SQL over the number n of a device."""
    await execute(
        house.environment["CARILLON_AUDIENCE_URL"],
        f'CREATE TABLE "{house.app}_apns" (seq_id bigint, user_id text, token text, locale text, region text, tz text)',
        f"""
        INSERT INTO "{house.app}_apns"
        SELECT n, md5('user' || n)::uuid::text,
               lpad(to_hex(n), 12, '0') || md5('a' || n) || substr(md5('b' || n), 1, 20),
               CASE n % 3 WHEN 0 THEN 'pt' ELSE 'en' END, CASE n % 6 WHEN 0 THEN 'US' ELSE 'BR' END, {tz}
        FROM generate_series(1::bigint, {devices}) n
        """,
        f'ALTER TABLE "{house.app}_apns" ADD PRIMARY KEY (seq_id)',
        "CHECKPOINT",
        "VACUUM ANALYZE",
    )
    for template in await _templates(house):
        await house.servers.store.templates.add(template)
    bundle_id = f"com.example.{house.app}"
    await house.servers.store.apps.add(
        App(id=house.app_id, name=house.app, bundle_id=bundle_id, created_by="bench", created_at=0, updated_at=0)
    )


async def payloads(house: House, count: int) -> list[bytes]:
    """Records as a job sends them to the first devices."""
    return await _records(house, await _templates(house), count)


async def _templates(house: House) -> tuple[Template, Template]:
    text = "{{who}} liked it"
    (short,) = await _records(house, _in_both_locales(house, text), 1)
    return _in_both_locales(house, text + "!" * (RECORD_BYTES - len(short)))


def _in_both_locales(house: House, text: str) -> tuple[Template, Template]:
    english, portuguese = (
        Template(id=str(uuid.uuid4()), app_id=house.app_id, name="like", locale=locale, body={"alert": text})
        for locale in ("en", "pt")
    )
    return english, portuguese


async def _records(house: House, templates: tuple[Template, ...], count: int) -> list[bytes]:
    job: Job = replace(house.job(), plan=Plan(templates=templates))
    devices = await house.servers.audience.read(table_name(house.app, APNS), {}, KeyRange(0, count))
    return Renderer(job).render(devices, now=datetime.now(UTC)).records
