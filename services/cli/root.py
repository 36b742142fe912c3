"""The `carillon` command. The module of a noun is loaded when one of its verbs is chosen, so that the others cost
nothing."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import click

from services.cli.exits import MEANINGS

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Send": {
        "jobs": "Create, watch, pause and stop jobs (push, mail, SMS).",
        "groups": "Localized pushes: a job for each time zone.",
        "messages": "Messages to a recipient, or one message, and how they ended.",
        "templates": "Texts of an app's messages, by name and locale.",
        "credentials": "Provider accounts that send messages.",
        "suppressions": "Blocked addresses of an app, and why each is blocked.",
    },
    "Schedules": {
        "schedules": "Callbacks at their instants: once, by cron, or at intervals.",
        "signing-secrets": "Secrets that sign your webhooks.",
        "calendars": "Days on which schedules do not fire.",
        "namespaces": "Namespaces that own schedules.",
    },
    "Event bus": {
        "publish": "Publish events on a topic of the bus.",
        "topics": "Topics of the bus.",
        "subscriptions": "Subscriptions of the bus: who gets which events.",
        "deliveries": "Calls to receivers of the bus, and their answers.",
        "replays": "Past events of the bus, delivered once more.",
        "listen": "Copy deliveries of the bus to a program on your machine.",
    },
    "Watch and act": {
        "status": "Tell in one screen whether all is well, and why not.",
        "events": "Events of a job, newest last.",
        "minutes": "Work done, minute by minute.",
        "processes": "Running processes, and the work they have in hand.",
        "queues": "Queues on RabbitMQ: waiting tasks.",
        "dead-letters": "Scheduled calls and events that failed every attempt.",
        "bulk": "Act on many things at once.",
        "audit": "Acts on the deployment, and who did them.",
    },
    "Access": {
        "apps": "Apps that jobs send for.",
        "users": "People who may use the API.",
        "tokens": "Tokens of services.",
        "sessions": "Browsers that are signed in to the dashboard.",
        "settings": "Settings of the running API.",
    },
    "This machine": {
        "context": "The deployments that you work with, by name.",
        "completion": "Print the completion script of a shell.",
    },
}
"""The nouns of a running deployment, each with its sentence in the help."""

_CHAPTERS = {
    "accounts": ("apps", "users", "tokens", "sessions", "namespaces", "signing_secrets"),
    "jobs": ("events",),
    "messages": ("suppressions",),
    "bus": ("topics", "publish", "listen"),
    "deliveries": ("dead_letters",),
    "subscriptions": ("replays",),
    "console": ("minutes", "processes", "queues", "status", "audit", "settings"),
    "context": ("completion",),
}
"""The nouns in a module of `verbs` with another name; every other noun is in the module of its name."""
_MODULES = {noun: module for module, nouns in _CHAPTERS.items() for noun in nouns}

NOUNS: Mapping[str, str] = {noun: sentence for group in GROUPS.values() for noun, sentence in group.items()}


class CarillonCommand(click.Group):
    """The nouns, and the commands that run a deployment, which are loaded only if no noun is meant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*NOUNS, *_find_programs()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in NOUNS:
            return _find_programs().get(cmd_name)
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"services.cli.verbs.{_MODULES.get(name, name)}"), name)
        command.short_help = NOUNS[cmd_name]
        command.help = command.help or NOUNS[cmd_name]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=self.list_commands(ctx), ctx=ctx
            ) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from services.cli.nouns import common_options

        running = _find_programs()
        for group, nouns in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl(list(nouns.items()))
        with formatter.section("Run it"):
            formatter.write_dl([(name, running[name].get_short_help_str(100)) for name in sorted(running)])
        with formatter.section("Common options, for all commands but those of the last group"):
            formatter.write_dl([row for option in common_options() if (row := option.get_help_record(ctx))])
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), meaning) for code, meaning in MEANINGS.items()])


def _find_programs() -> Mapping[str, click.Command]:
    from services.cli.programs import programs

    return programs.commands


@click.group(cls=CarillonCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="carillon")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="CARILLON_CONFIG",
    help="A settings file, as `carillon config` prints it. CARILLON_<SECTION>_<FIELD> variables override it.",
)
@click.pass_context
def main(context: click.Context, config: Path | None) -> None:
    """Timed messages at scale: pushes, mail, SMS, webhooks and events.

    To see it work: carillon demo. To try it: carillon up, and in another terminal carillon seed, then carillon jobs
    list. To run it on your own servers: carillon init once, then api, scheduler, worker, feedback --read answers and
    feedback --read bus, any number of each.
    """
    context.obj = config
