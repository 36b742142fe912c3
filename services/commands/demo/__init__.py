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
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import click
from msgspec.structs import replace

from services.commands.demo import events, mailing, pushes
from services.commands.demo.display import show_proofs
from services.commands.demo.victim import Victim
from services.commands.seed import Seeded, Target, first_steps
from services.commands.seed.customer import Customer
from services.connections import Capabilities
from services.embedded.instance import OURS
from shared.domain.errors import CarillonError, Unavailable
from shared.flow.accounts.sign_in_links import make_sign_in_link
from shared.runtime import logs
from shared.runtime.lifecycle import EXIT_FAILED
from shared.runtime.private import make_private_folder, private_files
from shared.runtime.settings import Settings

_FLUSH_SECONDS = 0.5
_CALL_SECONDS = 2.0
_OWN_NETWORK = "127.0.0.0/8"


async def demo(settings: Settings, *, count: int, keep: bool, data_dir: str | None) -> int:
    """Run the demo; returns the exit code, 1 if a promise was not kept.

    Raises:
        Conflict: another Carillon runs on the folder.
        Unavailable: a server is not installed or does not start.
    """
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with private_files(), _folder(data_dir, keep=keep) as folder, (folder / "demo.log").open("a") as out:
        logs.set_up(settings.logs, service="demo", out=out)
        victim = Victim(_own(settings, folder, count), folder)
        try:
            await victim.start(pushes.fault(count))
            seeded = await _play(victim, count)
            if seeded and keep:
                await _stay(victim, seeded)
        except CarillonError:
            click.echo(f"The end of the log:\n{victim.last_words}", err=True)
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
    because somebody is watching."""
    return replace(
        settings,
        worker=replace(settings.worker, batch_size=pushes.batch_size(count)),
        providers=replace(
            settings.providers,
            call_seconds=min(settings.providers.call_seconds, _CALL_SECONDS),
            sandbox_file=str(folder / "sandbox.ndjson"),
        ),
        bus=replace(settings.bus, root_key=settings.bus.root_key or secrets.token_hex(16), allow_http=True),
        callbacks=replace(settings.callbacks, allowed_networks=(*settings.callbacks.allowed_networks, _OWN_NETWORK)),
        feedback=replace(settings.feedback, flush_seconds=min(settings.feedback.flush_seconds, _FLUSH_SECONDS)),
    )


@asynccontextmanager
async def _capabilities(victim: Victim) -> AsyncIterator[Capabilities]:
    """The victim's stream and store at their present addresses. The stream is a file and outlives the victim."""
    settings, here = victim.settings, victim.instance
    stream, store = replace(settings.stream, url=here.stream), replace(settings.store, url=here.store)
    capabilities = Capabilities(replace(settings, stream=stream, store=store), service="demo")
    try:
        yield capabilities
    finally:
        await capabilities.close()


async def _play(victim: Victim, count: int) -> Seeded | None:
    """The acts, up to the first that fails; the app that they used, `None` if a promise was not kept."""
    settings, instance = victim.settings, victim.instance
    click.echo(f"Carillon is up at {instance.api}, as process {victim.pid}; data in {instance.data}")

    click.echo(f"\n1. A push to {count:,} devices, with templates in two locales")
    topics = settings.stream.topic_template
    async with _capabilities(victim) as capabilities:
        sent = await pushes.send_pushes(_target(victim), victim, mailing.FAULT, capabilities.stream, topics, count)
    kept = show_proofs(pushes.proofs(sent))
    click.echo(f"    {pushes.summarize(sent)}")
    if not kept:
        return None

    click.echo(f"\n2. {mailing.MAILS:,} mails through an account that allows {mailing.RATE:,} a second")
    target, sandbox = _target(victim), Path(settings.providers.sandbox_file)
    async with Customer(target.api, target.headers) as customer:
        mailed = await mailing.send_mails(customer, victim, sent.seeded.app_id, sandbox)
    if not show_proofs(mailing.proofs(mailed)):
        return None

    click.echo(f"\n3. {events.EVENTS:,} events on the bus, to a healthy receiver and one that fails at first")
    published = await events.publish_and_receive(victim.instance.api, settings.bus.root_key)
    return sent.seeded if show_proofs(events.proofs(published)) else None


async def _stay(victim: Victim, seeded: Seeded) -> None:
    """Leave it running until Ctrl-C. Raises `Unavailable` if it ends by itself."""
    instance = victim.instance
    async with _capabilities(victim) as capabilities:
        key = await make_sign_in_link(capabilities.store, instance.admin, capabilities.clock.now())
    click.echo("\nCarillon keeps running. This link opens the dashboard once, within ten minutes:")
    click.echo(f"  {instance.api}/ui/welcome?key={key}\n")
    click.echo(f"{first_steps(_target(victim), seeded)}\n\nCtrl-C ends this.")
    with suppress(asyncio.CancelledError):
        while not victim.is_dead:
            await asyncio.sleep(0.5)
        raise Unavailable("Carillon has ended by itself")


def _target(victim: Victim) -> Target:
    """The present addresses of the victim: its servers get other ports at each start."""
    here, secret = victim.instance, victim.settings.api.proxy_secret
    return Target(api=here.api, audience=here.audience, email=here.admin, proxy_secret=secret)
