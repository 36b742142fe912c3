"""`carillon doctor`: asks every server that the settings name whether it is as Carillon needs it, and changes nothing.

    services/commands/doctor/
        findings.py               what is said: ok, warning or fault, a sentence, what to type
        examination.py            one server and its questions; address and TLS, which all have
        mongodb.py, rabbitmq.py, kafka.py, postgresql.py, files.py, mail.py, messages.py, bus_log.py,
        bus.py, deployment.py
        runner.py                 asks all at once, and waits for nobody for longer than 5 s
        display.py, secrets.py    how it is shown, and what is not

The questions themselves lie where the drivers are, in a module called `inspection` each; what the answers mean is said
here.
"""

import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress

import structlog
from msgspec import Struct

from services.commands.doctor.chosen import hurry, load_drivers, select_examinations
from services.commands.doctor.display import as_json, as_list, show
from services.commands.doctor.examination import Examination
from services.commands.doctor.findings import Finding, Level
from services.commands.doctor.runner import Round
from services.commands.doctor.secrets import Secrets
from services.connections import Capabilities
from shared.domain.errors import Unavailable
from shared.runtime.settings import Settings

EXIT_WELL = 0
EXIT_FOUND = 9


class Examined(Struct, frozen=True):
    """The findings, the servers that were examined, and whether one of them still hangs."""

    findings: Sequence[Finding]
    examinations: Sequence[Examination]
    abandoned: bool


async def examine(settings: Settings) -> Examined:
    """Ask all servers all questions, at once. Raises `Invalid` for settings that cannot be used."""
    capabilities = Capabilities(hurry(settings), service="doctor")
    secrets = Secrets(settings)
    examinations = select_examinations(capabilities)
    with suppress(Unavailable):  # which the questions tell
        await load_drivers(capabilities)
    asking = Round()
    try:
        findings = await asking.examine_all(examinations)
    finally:
        await asking.close(capabilities.close)
    return Examined([secrets.mask(finding) for finding in findings], examinations, asking.abandoned)


async def examine_and_tell(settings: Settings, *, json: bool, colour: bool) -> int:
    """Print what is found, and return the exit code."""
    _be_quiet()
    began = time.monotonic()
    report = await examine(settings)
    if json:
        show("\n".join(map(as_json, report.findings)), colour=False)
    else:
        show(as_list(report.findings, report.examinations, time.monotonic() - began), colour=colour)
    code = EXIT_WELL if all(finding.level is Level.OK for finding in report.findings) else EXIT_FOUND
    if report.abandoned:
        # A driver, or a thread that resolves a name, may hang for minutes yet. Nothing is left for it to do.
        os._exit(code)
    return code


def _be_quiet() -> None:
    """The findings tell what drivers and capabilities would log."""
    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
