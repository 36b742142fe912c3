"""The `carillon` command: a sub-command per service, and what operators need around them."""

import asyncio
import os
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import click
import uvloop

from services import compose
from shared.domain.errors import CarillonError
from shared.runtime import configuration, health, logs
from shared.runtime.lifecycle import run
from shared.runtime.settings import Settings


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="carillon")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="CARILLON_CONFIG",
    help="A settings file, as `carillon config` prints it. CARILLON_<SECTION>_<FIELD> variables go before it.",
)
@click.pass_context
def main(context: click.Context, config: Path | None) -> None:
    """Timed messages at scale: push jobs from an HTTP call to Kafka, exactly once."""
    context.obj = config


def settings_of(context: click.Context) -> Settings:
    """The settings of this process; a fault in them ends the command with what is wrong."""
    try:
        return configuration.load(os.environ, context.obj)
    except CarillonError as error:
        raise click.ClickException(str(error)) from error


def run_async(work: Coroutine[Any, Any, int]) -> None:
    """Run to the end and leave with its exit code."""
    try:
        code = uvloop.run(work)
    except CarillonError as error:
        raise click.ClickException(str(error)) from error
    sys.exit(code)


async def serve(settings: Settings, services: Sequence[str]) -> int:
    """Run services until a signal ends them."""
    with_ = await compose.opened(settings, service="-".join(services))
    known = health.Health()
    compose.watch(services, with_, known)
    components = [health.server(known, settings.health), compose.closing(with_)]
    for service in services:
        components += compose.components(service, with_, known)
    return await run(components, health=known, shutdown=settings.shutdown)


def _add_service(name: str, services: Sequence[str], sentence: str) -> None:
    @main.command(name, help=sentence)
    @click.pass_context
    def command(context: click.Context) -> None:
        settings = settings_of(context)
        logs.set_up(settings.logs, service=name)
        run_async(serve(settings, services))


_add_service("api", ["api"], "Run the HTTP API.")
_add_service("scheduler", ["scheduler"], "Run the scheduler: upkeep of unfinished work.")
_add_service("worker", ["worker"], "Run a worker: it plans, sends and finishes jobs.")
_add_service("feedback", ["feedback"], "Run the feedback consumer.")
_add_service("all", compose.SERVICES, "Run the four services in one process, on the servers that the settings name.")


@main.command()
@click.pass_context
def init(context: click.Context) -> None:
    """Make the vhost, queues, policies, topics and indexes that are missing. Safe to repeat."""
    settings = settings_of(context)

    async def work() -> int:
        with_ = await compose.opened(settings, service="init")
        try:
            await with_.setup()
            await with_.verify()
        finally:
            await with_.close()
        click.echo("Everything is in place.")
        return 0

    run_async(work())


@main.command()
@click.pass_context
def config(context: click.Context) -> None:
    """Print all settings as they stand, each with what it means."""
    click.echo(configuration.describe(settings_of(context)), nl=False)
