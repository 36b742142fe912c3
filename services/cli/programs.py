"""The commands that run the services, and what people need around them.

A command imports what it runs when it is chosen: so the others start at once, and a service loads nothing of theirs.
"""

import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from services.cli.contexts import DATA_FOLDER
from services.cli.options import Count, Decorate
from services.commands.rules import print_rules
from shared.console.rules.signs import ROLES
from shared.core.errors import CarillonError, Invalid
from shared.push.rules.records import APNS, SERVICES
from shared.runtime import configuration, lifecycle
from shared.runtime.private import without_secrets
from shared.runtime.settings import Settings

if TYPE_CHECKING:
    from services.embedded.instance import Instance
    from shared.drivers.kafka import Stream

programs = click.Group("programs")
"""The commands of this module."""

_data_dir = click.option("--data-dir", type=click.Path(file_okay=False), help="Folder that holds all data.")


def _devices(fewest: int, *, default: int, meaning: str) -> Decorate:
    number = Count(fewest, 10_000_000)
    return click.option("--devices", type=number, metavar="N", default=default, show_default=True, help=meaning)


def settings_of(context: click.Context) -> Settings:
    """The settings of this process; a fault in them ends the command with what is wrong."""
    try:
        return configuration.load(os.environ, context.obj)
    except CarillonError as error:
        raise click.ClickException(str(error)) from error


def run_async(work: Coroutine[Any, Any, int]) -> None:
    """Run the work to its end and leave with its exit code."""
    from asyncio import CancelledError

    import uvloop

    from shared.runtime.lifecycle import EXIT_INTERRUPTED, raise_file_limit

    raise_file_limit()
    try:
        code = uvloop.run(work)
    except CarillonError as error:
        raise click.ClickException(describe_error(error)) from error
    except (KeyboardInterrupt, CancelledError):
        code = EXIT_INTERRUPTED
    sys.exit(code)


def describe_error(error: CarillonError) -> str:
    """An error as people read it, without the passwords in it."""
    field = getattr(error, "field", None)
    text = str(error)
    return without_secrets(text if field is None or field in text else f"{field}: {text}")


def _serve(context: click.Context, services: Sequence[str], name: str) -> None:
    with lifecycle.pause_collection():
        from services.wiring.process import serve

    run_async(serve(settings_of(context), services, name=name))


def _add_service(name: str, services: Sequence[str], sentence: str) -> None:
    @programs.command(name, short_help=sentence, help=sentence)
    @click.pass_context
    def command(context: click.Context) -> None:
        _serve(context, services, name)


for _process, _sentence in {
    "api": "Run the HTTP API.",
    "scheduler": "Run the scheduler: the clock, and upkeep of unfinished work.",
    "worker": "Run a worker: it plans, sends and finishes jobs.",
}.items():
    _add_service(_process, [_process], _sentence)
_add_service("all", ROLES, "Run all services in one process.")


@programs.command(short_help="Read the answers about pushes, or the log of the bus.")
@click.option(
    "--read",
    "readers",
    type=click.Choice(["answers", "bus"]),
    multiple=True,
    required=True,
    help="`answers`: count what pushers answer about pushes; `bus`: bring events to their subscriptions.",
)
@click.pass_context
def feedback(context: click.Context, readers: Sequence[str]) -> None:
    """Read Kafka and fold what it says into MongoDB: the answers about pushes, or the log of the bus. A deployment runs
    both, each in processes of its own."""
    if len(readers) > 1:
        raise click.UsageError("give --read once: a process reads the answers or the bus")
    _serve(context, [f"feedback-{readers[0]}"], f"feedback-{readers[0]}")


@programs.command(short_help="Make the queues, topics and indexes that are missing.")
@click.pass_context
def init(context: click.Context) -> None:
    """Make the vhost, queues, policies, topics and indexes that are missing. Safe to repeat."""
    from services.wiring import process

    run_async(process.init(settings_of(context)))


@programs.command(short_help="Ask all servers whether they are as Carillon needs them.")
@click.option("--json", "as_json", is_flag=True, help="Print findings as JSON, one a line.")
@click.pass_context
def doctor(context: click.Context, *, as_json: bool) -> None:
    """Ask all servers that the settings name whether they are as Carillon needs them. Changes nothing; takes under 10
    seconds, whatever hangs. Unless the settings name a database, the servers of a `carillon up` that runs on the data
    folder are asked.

    Exits with 0 if all is well, and with 9 if something was found.
    """
    from services.commands.doctor import examine_and_tell
    from services.embedded import instance as embedded

    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    async def work() -> int:
        try:
            return await examine_and_tell(settings, json=as_json, colour=colour)
        except Invalid as error:
            raise _Misused(describe_error(error)) from error

    try:
        settings = settings_of(context)
        here = embedded.find_running(_folder_of(settings))
        if here is not None and settings.store.url == Settings().store.url:
            click.echo(
                f"A `carillon up` runs here, as process {here.process.pid}: these are its servers.\n", err=as_json
            )
            settings = embedded.settings_of(here, settings)
    except click.ClickException as error:
        raise _Misused(error.message) from error
    except CarillonError as error:
        raise _Misused(describe_error(error)) from error
    run_async(work())


class _Misused(click.ClickException):
    """The command line or a setting is wrong, which says nothing of the servers."""

    exit_code = 2


@programs.command(short_help="Print the settings with their defaults and meanings.")
@click.option("--all", "rare", is_flag=True, help="Include those that few deployments change.")
@click.option("--effective", is_flag=True, help="Print the values in effect here, with passwords masked.")
@click.pass_context
def config(context: click.Context, *, rare: bool, effective: bool) -> None:
    """Print the settings that an operator chooses, each with its default and what it means, as a settings file."""
    if effective:
        click.echo(without_secrets(configuration.describe(settings_of(context))), nl=False)
    else:
        click.echo(configuration.describe(rare=rare), nl=False)


@programs.command(short_help="Run all services with servers of their own, for a laptop.")
@_data_dir
@click.option("--port", type=Count(0, 65_535), metavar="N", help="Port of the API; 0 takes a free one.")
@click.option("--verbose", is_flag=True, help="Print the log of every request, and not warnings alone.")
@click.option("--link", "link_alone", is_flag=True, help="Print a new link to the dashboard of a running Carillon.")
@click.pass_context
def up(context: click.Context, data_dir: str | None, port: int | None, *, verbose: bool, link_alone: bool) -> None:
    """Run all services in one process, with servers of their own, until Ctrl-C. The data stay in a folder."""
    from services.embedded import instance as embedded
    from shared.runtime import logs

    if link_alone:
        context.invoke(dashboard, data_dir=data_dir)
        return
    try:
        embedded.check_folder(_folder_of(settings_of(context), data_dir))
    except CarillonError as error:
        raise click.ClickException(describe_error(error)) from error
    settings = _embedded_settings(context, data_dir, port)
    if sys.stderr.isatty() and not verbose and settings.logs == Settings().logs:
        settings = replace(settings, logs=replace(settings.logs, level="warning"))
    logs.set_up(settings.logs, service="embedded")

    def announce(instance: embedded.Instance, link: str) -> None:
        click.echo(
            f"{embedded.describe(instance, link)}\n\n"
            f"Next, in another terminal: {_tell_folder(instance, data_dir)}{sys.argv[0]} seed. Ctrl-C ends this."
        )

    run_async(embedded.serve(settings, announce))


@programs.command(short_help="Print a new link to the dashboard of a `carillon up`.")
@_data_dir
@click.pass_context
def dashboard(context: click.Context, data_dir: str | None) -> None:
    """Print a link that signs a browser in to the dashboard of the `carillon up` on the data folder, once, within ten
    minutes. The browser acts as the same person as the command line here."""
    from services.embedded import instance as embedded

    run_async(embedded.print_link(_find_running(context, data_dir), settings_of(context)))


def _embedded_settings(context: click.Context, data_dir: str | None, port: int | None = None) -> Settings:
    """The settings with this data folder, and with free ports where taken ones are only defaults."""
    from services.embedded.processes import free_port, is_free
    from services.wiring.process import check_ports

    settings, names = settings_of(context), ("api", "health")
    if data_dir is not None:
        settings = replace(settings, embedded=replace(settings.embedded, data_dir=data_dir))
    if port is not None:
        settings = replace(settings, api=replace(settings.api, port=port))
    asked = {
        name
        for name in names
        if getattr(settings, name).port != getattr(Settings(), name).port
        or f"CARILLON_{name.upper()}_PORT" in os.environ
    } | ({"api"} if port is not None else set())
    try:
        check_ports(settings, asked)
        for name in names:
            section = getattr(settings, name)
            if not is_free(section.host, section.port):
                click.echo(f"Port {section.port} is taken: {name} gets a free one.", err=True)
                settings = replace(settings, **{name: replace(section, port=free_port())})
    except CarillonError as error:
        raise click.ClickException(describe_error(error)) from error
    return settings


def _tell_folder(instance: "Instance", data_dir: str | None) -> str:
    """The beginning of a shell's line after which `carillon` finds the instance."""
    return f"export {DATA_FOLDER}={shlex.quote(instance.data)}; " if data_dir is not None else ""


def _folder_of(settings: Settings, data_dir: str | None = None) -> Path:
    return Path(data_dir or settings.embedded.data_dir).resolve()


@programs.command(short_help="Make an app, templates and devices to try a job with.")
@click.option("--app", default="demo", show_default=True, help="The app's name.")
@click.option("--service", type=click.Choice(list(SERVICES)), default=APNS, show_default=True)
@_devices(0, default=1_000, meaning="Minimum number of devices.")
@click.option("--embedded/--no-embedded", "own", default=None, help="Use the `carillon up` on the data folder, or not.")
@_data_dir
@click.option("--api", help="URL of the API (default: that of `carillon up`, or of the settings).")
@click.option("--email", help="E-mail address of the caller (default: the first admin).")
@click.option("--token", help="A service's token, in place of an e-mail address.")
@click.pass_context
def seed(
    context: click.Context,
    app: str,
    service: str,
    devices: int,
    own: bool | None,
    data_dir: str | None,
    api: str | None,
    email: str | None,
    token: str | None,
) -> None:
    """Make an app, templates in two locales and devices to try a first job with. Safe to repeat.

    The app and the templates go to the API, the devices into the push database: those of a `carillon up` that runs on
    the data folder, or else those that the settings name.
    """
    from services.commands.seed import Customer, headers_of, seed_and_tell
    from services.embedded import instance as embedded
    from shared.accounts.rules.apps import check_app_name

    settings = settings_of(context)
    instance = None if own is False else embedded.find_running(_folder_of(settings, data_dir))
    if own and instance is None:
        raise click.ClickException("no `carillon up` runs on this data folder; --data-dir names another one")
    email = email or (instance.admin if instance else settings.api.first_admin)
    if not email and not token:
        raise click.UsageError(
            "no `carillon up` runs on this data folder, and no caller is named. Give --data-dir; or give --email or "
            "--token, or set CARILLON_API_FIRST_ADMIN."
        )
    url = api or (instance.api if instance else embedded.local_url(settings.api))
    audience = instance.audience if instance else settings.audience.url
    headers = headers_of(email, token=token or "", proxy_secret=settings.api.proxy_secret)

    async def work() -> int:
        check_app_name(app)
        async with Customer(url, headers) as customer:
            command = f"{_tell_folder(instance, data_dir)}{sys.argv[0]}" if instance and not (api or token) else ""
            told = await seed_and_tell(customer, audience, app=app, service=service, count=devices, command=command)
            click.echo(told)
        return 0

    run_async(work())


@programs.group(short_help="Read what pushes wrote on a `carillon up`, and write feedback.")
def records() -> None:
    """Read the records that pushes wrote on a `carillon up`, and write a pusher's feedback. A deployment has Kafka for
    both."""


@records.command("read")
@click.argument("topic", required=False)
@click.option("--follow", is_flag=True, help="Wait for more records, until Ctrl-C.")
@_data_dir
@click.pass_context
def read_records(context: click.Context, topic: str | None, *, follow: bool, data_dir: str | None) -> None:
    """Print the records of a topic, one JSON a line, oldest first. Without TOPIC, list the topics.

    Pushes of the app demo to iOS write to push-demo_apns-massive.
    """
    from services.embedded.instance import print_records, print_topics

    if topic is None:
        if follow:
            raise click.UsageError("--follow needs a TOPIC; without both, this lists the topics")
        _with_log(context, data_dir, print_topics)
        return
    _with_log(context, data_dir, lambda log: print_records(log, topic, follow=follow))


@records.command("write")
@click.argument("topic")
@_data_dir
@click.pass_context
def write_records(context: click.Context, topic: str, data_dir: str | None) -> None:
    """Append the lines of stdin to a topic of feedback. Its name ends in -feedbacks."""
    from services.embedded.instance import append_feedback

    _with_log(context, data_dir, lambda log: append_feedback(log, topic))


def _with_log(context: click.Context, data_dir: str | None, work: Callable[["Stream"], Awaitable[int]]) -> None:
    from services.embedded.instance import open_servers

    instance = _find_running(context, data_dir)

    async def run() -> int:
        async with open_servers(instance, settings_of(context), service="records") as servers:
            return await work(servers.stream)

    run_async(run())


def _find_running(context: click.Context, data_dir: str | None) -> "Instance":
    from services.embedded import instance as embedded

    folder = _folder_of(settings_of(context), data_dir)
    if (found := embedded.find_running(folder)) is None:
        raise click.ClickException(f"no `carillon up` runs on {folder}; --data-dir names another folder")
    return found


if find_spec("carillon_imports"):  # a distribution of its own, in `contrib`
    from carillon_imports.command import import_group

    programs.add_command(import_group(settings_of, run_async))
programs.add_command(print_rules)


@programs.command("demo", short_help="Send pushes, mails and events, and survive two kills.")
@_devices(1, default=100_000, meaning="Number of devices.")
@click.option("--keep", is_flag=True, help="Leave it running afterwards, and keep its data.")
@_data_dir
@click.pass_context
def demonstrate(context: click.Context, devices: int, *, keep: bool, data_dir: str | None) -> None:
    """Send pushes, mails and events to made-up receivers, kill Carillon twice, and count what arrived. Ends by itself.

    The data are in a temporary folder unless you name one.
    """
    from services.commands.demo import demo

    settings = _embedded_settings(context, None)
    run_async(demo(settings, count=devices, keep=keep, data_dir=data_dir))
