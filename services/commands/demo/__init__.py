"""`carillon demo`: an embedded Carillon, a hundred thousand devices, one job, and a receiver that answers. Then a few
hundred mails to a provider that is none, and a worker that fails in the middle of them. Then a thousand events on the
bus, to a receiver that is well and one that is not.

Apps, templates, the job and its progress go over HTTP, devices by COPY and records through the stream's reader, as a
customer's own systems would do it. The demo checks what it saw, and fails where that is not what Carillon promises.
"""

import asyncio
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click
from msgspec.structs import replace

from services.commands.demo import events, mailing
from services.commands.demo.events import EVENTS, publish_and_receive
from services.commands.demo.mailing import MAILS, RATE, send_mails
from services.commands.demo.report import faults, summary
from services.commands.demo.story import tell
from services.commands.seed import Target, first_steps
from services.commands.seed.customer import Customer
from services.connections import Capabilities
from services.embedded import instance as embedded
from services.embedded import processes
from services.embedded.instance import Instance
from shared.domain.errors import Unavailable
from shared.runtime import logs
from shared.runtime.lifecycle import EXIT_FAILED
from shared.runtime.private import make_private_folder, private_files
from shared.runtime.settings import Settings

FLUSH_SECONDS = 0.5
CALL_SECONDS = 2.0
OWN_NETWORK = "127.0.0.0/8"


async def demo(settings: Settings, *, count: int, keep: bool, data_dir: str | None) -> int:
    """Run the demo; returns the exit code, 1 where a promise was not kept.

    Raises:
        Conflict: another Carillon runs on the folder.
        Unavailable: a server is not installed or does not start.
    """
    with private_files(), _folder(data_dir, keep=keep) as folder:
        log = folder / "carillon.log"
        with log.open("a") as out:
            logs.set_up(settings.logs, service="demo", out=out)
            code = await embedded.serve(_own(settings, folder), _announce, _companion(count, keep=keep))
        if code == EXIT_FAILED:
            click.echo(f"The end of the log:\n{processes.tail(log)}", err=True)
        return code


@contextmanager
def _folder(data_dir: str | None, *, keep: bool) -> Iterator[Path]:
    """The folder for the data: the given one, or a temporary one, which goes away unless it is kept."""
    if data_dir is not None:
        folder = Path(data_dir)
        try:
            make_private_folder(folder, ours=embedded.OURS)
        except OSError as error:
            raise Unavailable(f"the data folder cannot be used: {error}") from error
        yield folder
        return
    folder = Path(tempfile.mkdtemp(prefix="carillon-demo-"))
    try:
        yield folder
    finally:
        if keep:
            click.echo(f"The data stay in {folder}: carillon up --data-dir {folder} goes on with them.")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _own(settings: Settings, folder: Path) -> Settings:
    """The demo's settings. It writes counts more often than production does, and waits less long for a worker that has
    failed, because somebody is watching."""
    return replace(
        settings,
        embedded=replace(settings.embedded, data_dir=str(folder)),
        providers=replace(settings.providers, call_seconds=min(settings.providers.call_seconds, CALL_SECONDS)),
        bus=replace(settings.bus, root_key=settings.bus.root_key or secrets.token_hex(16), allow_http=True),
        callbacks=replace(settings.callbacks, allowed_networks=(*settings.callbacks.allowed_networks, OWN_NETWORK)),
        feedback=replace(settings.feedback, flush_seconds=min(settings.feedback.flush_seconds, FLUSH_SECONDS)),
    )


def _announce(instance: Instance, link: str) -> None:
    click.echo(f"{embedded.describe(instance, link)}\n")


def _companion(count: int, *, keep: bool) -> embedded.Companion:
    async def companion(instance: Instance, capabilities: Capabilities) -> int:
        secret = capabilities.settings.api.proxy_secret
        target = Target(api=instance.api, audience=instance.audience, email=instance.admin, proxy_secret=secret)
        click.echo(f"A job to {count:,} devices, with templates in two locales:")
        outcome = await tell(target, capabilities.stream, capabilities.settings.stream.topic_template, count)
        kept = "Every device got exactly one record, and every answer was counted once."
        wrong = _conclude(summary(outcome), faults(outcome), kept)
        if not wrong:
            wrong = await _show_mails(target, outcome.seeded.app_id, Path(capabilities.settings.providers.sandbox_file))
        if not wrong:
            wrong = await _show_events(target, capabilities.settings.bus.root_key)
        if keep:
            click.echo(f"\nIt goes on running. {first_steps(target, outcome.seeded)}\n\nCtrl-C ends this.")
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        return EXIT_FAILED if wrong else 0

    return companion


async def _show_mails(target: Target, app_id: str, sandbox: Path) -> list[str]:
    """The second act; returns a sentence for each promise that was not kept."""
    click.echo(f"\n{MAILS:,} mails by a provider that takes {RATE:,} a second. A worker fails in the middle:")
    async with Customer(target.api, target.headers) as customer:
        story = await send_mails(customer, app_id, sandbox)
    kept = "Every mail arrived, never more than the rate within a second, and the ledger adds up."
    return _conclude(mailing.summarize(story), mailing.find_faults(story), kept)


async def _show_events(target: Target, root_key: str) -> list[str]:
    """The third act; returns a sentence for each promise that was not kept."""
    click.echo(f"\n{EVENTS:,} events on the bus, to a receiver that is well and one that fails at first:")
    story = await publish_and_receive(target.api, root_key)
    kept = "Each event came to both in one delivery, and the one that is well waited for nobody."
    return _conclude(events.summarize(story), events.find_faults(story), kept)


def _conclude(seen: str, wrong: list[str], kept: str) -> list[str]:
    """Say what was seen of an act, and which promises were not kept, or that they all were; returns the former."""
    click.echo(f"\n{seen}\n")
    for sentence in wrong:
        click.echo(f"WRONG: {sentence}", err=True)
    if not wrong:
        click.echo(kept)
    return wrong
