"""`carillon demo`: three acts on this machine alone, in which processes die and promises hold.

A hundred thousand pushes, a few hundred mails through an account with a rate, a thousand events on the bus. Carillon
runs as `carillon up` in a process of its own. Apps, templates, jobs and their progress go over HTTP, devices by COPY
and records through the stream's reader, as a customer's own systems would do it. The demo counts what arrived, and
fails if that is not what Carillon promises.
"""

import asyncio
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click
from msgspec.structs import replace

from services.commands.demo import acts
from services.commands.demo.stage import Victim
from services.commands.seed import Customer, Seeded, first_steps, headers_of, seed
from services.embedded import processes
from services.embedded.instance import OURS, make_link, open_servers
from shared.core.errors import CarillonError, Unavailable
from shared.push.rules.records import APNS
from shared.runtime import logs
from shared.runtime.lifecycle import EXIT_FAILED
from shared.runtime.private import make_private_folder, private_files
from shared.runtime.settings import Settings

_FLUSH_SECONDS = 0.5
_CALL_SECONDS = 2.0
_OWN_NETWORK = "127.0.0.0/8"


async def demo(settings: Settings, *, count: int, keep: bool, data_dir: str | None) -> int:
    """Run the demo; returns the exit code, 1 if a promise was not kept."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with private_files(), _folder(data_dir, keep=keep) as folder, (folder / "demo.log").open("a") as out:
        logs.set_up(settings.logs, service="demo", out=out)
        victim = Victim(_own(settings, folder, count), folder)
        try:
            await victim.start(acts.fault(count))
            here, secret = victim.instance, victim.settings.api.proxy_secret
            async with Customer(here.api, headers_of(here.admin, proxy_secret=secret)) as customer:
                seeded = await _play(customer, victim, count)
                if seeded and keep:
                    await _stay(customer, victim, seeded)
        except CarillonError:
            click.echo(f"The end of the log:\n{processes.tail(victim.log)}", err=True)
            raise
        finally:
            await victim.stop()
    if seeded and not keep:
        click.echo("\nNext:\n  make demo ARGS=--keep   runs it again, stays, and prints a link to the dashboard")
        click.echo("  make up                 runs Carillon here; docs/first-push.md goes on")
    return 0 if seeded else EXIT_FAILED


@contextmanager
def _folder(data_dir: str | None, *, keep: bool) -> Iterator[Path]:
    """The folder for the data: the given one, or a temporary one, which goes away unless it is kept."""
    if data_dir is not None:
        folder = Path(data_dir).resolve()
        try:
            make_private_folder(folder, ours=OURS)
        except OSError as error:
            raise Unavailable(f"the data folder cannot be used: {error}") from error
        yield folder
        return
    folder = Path(tempfile.mkdtemp(prefix="carillon-demo-"))
    try:
        yield folder
    finally:
        if keep:
            click.echo(f"The data are in {folder}; continue with: carillon up --data-dir {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _own(settings: Settings, folder: Path, count: int) -> Settings:
    """The demo's settings. Counts are written more often than in production, and a dead worker is missed sooner,
    because a person is watching. A process that starts again listens on the same ports."""
    return replace(
        settings,
        api=replace(settings.api, port=settings.api.port or processes.free_port()),
        health=replace(settings.health, port=settings.health.port or processes.free_port()),
        worker=replace(settings.worker, batch_size=acts.batch_size(count)),
        providers=replace(
            settings.providers,
            call_seconds=min(settings.providers.call_seconds, _CALL_SECONDS),
            sandbox_file=str(folder / "sandbox.ndjson"),
        ),
        bus=replace(settings.bus, root_key=settings.bus.root_key or secrets.token_hex(16), allow_http=True),
        callbacks=replace(settings.callbacks, allowed_networks=(*settings.callbacks.allowed_networks, _OWN_NETWORK)),
        feedback=replace(settings.feedback, flush_seconds=min(settings.feedback.flush_seconds, _FLUSH_SECONDS)),
    )


async def _play(customer: Customer, victim: Victim, count: int) -> Seeded | None:
    """The acts, up to the first that fails; the app that they used, `None` if a promise was not kept."""
    settings, instance = victim.settings, victim.instance
    click.echo(f"Carillon is up at {instance.api}, as process {victim.pid}; data in {instance.data}")

    click.echo(f"\n1. A push to {count:,} devices, with templates in two locales")
    seeded = await seed(customer, instance.audience, app=acts.APP, service=APNS, count=count)
    # The stream is a file, which outlives the victim.
    async with open_servers(instance, settings, service="demo") as servers:
        if not await acts.send_pushes(customer, seeded, victim, acts.FAULT, servers.stream):
            return None

    click.echo(f"\n2. {acts.MAILS:,} mails through an account that allows {acts.RATE:,} a second")
    if not await acts.send_mails(customer, victim, seeded.app_id):
        return None

    click.echo(f"\n3. {acts.EVENTS:,} events on the bus, to a healthy receiver and one that fails at first")
    return seeded if await acts.publish_and_receive(instance.api, settings.bus.root_key) else None


async def _stay(customer: Customer, victim: Victim, seeded: Seeded) -> None:
    """Leave it running until Ctrl-C. Raises `Unavailable` if it ends by itself."""
    async with open_servers(victim.instance, victim.settings, service="demo") as servers:
        link = await make_link(victim.instance, servers)
    click.echo(f"\nCarillon keeps running. This link opens the dashboard once, within ten minutes:\n  {link}\n")
    click.echo(f"{first_steps(customer, seeded)}\n\nCtrl-C ends this.")
    with suppress(asyncio.CancelledError):
        while not victim.is_dead:
            await asyncio.sleep(0.5)
        raise Unavailable("Carillon has ended by itself")
