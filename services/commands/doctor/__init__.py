"""`carillon doctor`: asks every server that the settings name whether it is as Carillon needs it, and changes nothing.

`questions.py` says how questions are asked, answered and shown; the other modules have them. The drivers are asked by
modules beside them; this package judges their answers.
"""

import asyncio
import logging
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import cast
from urllib.parse import urlsplit

import click
import structlog

from services.commands.doctor.brokers import KAFKA, MANAGEMENT, RABBITMQ
from services.commands.doctor.mongodb import MONGODB
from services.commands.doctor.others import DEPLOYMENT, FILES, MAIL, MESSAGES, POSTGRESQL
from services.commands.doctor.questions import Finding, Given, Level, as_json, as_list, ask_all, mask_secrets
from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from services.wiring.workers import build_stages, queues_of
from shared.core.errors import Unavailable
from shared.drivers.blobs import LateBlobs
from shared.runtime.settings import Settings

SUBJECTS = (MONGODB, RABBITMQ, MANAGEMENT, KAFKA, POSTGRESQL, FILES, MAIL, MESSAGES, DEPLOYMENT)
EXIT_WELL = 0
EXIT_FOUND = 9
_CLOSING_SECONDS = 0.5


async def examine(settings: Settings) -> Sequence[Finding]:
    """Ask all servers all questions. Raises `Invalid` for settings that cannot be used."""
    servers = Servers(settings, service="doctor")
    for name in ("store", "broker", "stream", "audience", "blobs", "mail", "key_ring"):
        getattr(servers, name)  # refuses a URL or a key that cannot be read
    queues = queues_of(build_stages(Rooms(servers)))
    if urlsplit(settings.blobs.url).scheme == "s3":
        with suppress(Unavailable):  # which its question tells
            # On a busy machine, its driver takes seconds to load.
            await cast(LateBlobs, servers.blobs).load()
    subjects = [subject for subject in SUBJECTS if subject.place(settings) is not None]
    try:
        return mask_secrets(await ask_all(subjects, Given(servers, queues)), settings)
    finally:
        await asyncio.wait({asyncio.create_task(servers.close())}, timeout=_CLOSING_SECONDS)


async def examine_and_tell(settings: Settings, *, json: bool, colour: bool) -> int:
    """Print the findings, and end the process with the exit code. Raises `Invalid`."""
    # The findings say what drivers would log.
    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    began = time.monotonic()
    findings = await examine(settings)
    seconds = time.monotonic() - began
    text = "\n".join(map(as_json, findings)) if json else as_list(findings, SUBJECTS, settings, seconds)
    click.echo(text if colour else click.unstyle(text), color=colour)
    sys.stdout.flush()
    # A driver, or a thread that resolves a name, may hang for minutes. There is nothing left for it to do.
    os._exit(EXIT_WELL if all(finding.level is Level.OK for finding in findings) else EXIT_FOUND)
