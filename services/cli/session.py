"""The session of a verb: the deployment, the output, and questions before an act."""

import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import replace

from services.cli import contexts
from services.cli.exits import Exit, Failure
from services.cli.output import Output, visible

if TYPE_CHECKING:
    from services.cli.api import Api
    from services.cli.contexts import FoundDeployment

AGENT = "carillon-cli/0.2.0.dev0"
"""The audit's name for this program. Looking its version up would take longer than the request."""
NAMED_FROM_DEVICES = 100_000
NAMED_FROM_THINGS = 1_000


class CommonOptions(Struct, frozen=True, kw_only=True):
    context: str = ""
    json: bool = False
    quiet: bool = False
    wide: bool = False
    utc: bool = False
    yes: bool = False
    reason: str = ""
    app: str = ""
    config: Path | None = None


def read_common_options(ctx: click.Context) -> CommonOptions:
    given = {name: value for name, value in ctx.params.items() if name in CommonOptions.__struct_fields__ and value}
    config = ctx.find_root().params.get("config")
    return CommonOptions(**given, config=config if isinstance(config, Path) else None)


class Session:
    """One run of a verb. The deployment is looked up on first use."""

    def __init__(self, options: CommonOptions, *, patient: bool = True) -> None:
        self.options = options
        self.out = Output(json=options.json, quiet=options.quiet, wide=options.wide, utc=options.utc)
        self._patient = patient
        self._opened: Api | None = None

    @cached_property
    def found(self) -> "FoundDeployment":
        return contexts.find_deployment(self.options.context, config=self.options.config)

    @property
    def api(self) -> "Api":
        if self._opened is None:
            from services.cli.api import Api

            deployment = self.found.deployment
            self._opened = Api.connect(
                deployment.url,
                token=self._token,
                user=deployment.user,
                reason=self.options.reason,
                agent=AGENT,
                patient=self._patient,
            )
        return self._opened

    @cached_property
    def _token(self) -> str:
        """Looked up once, because a `token_command` may ask the user."""
        return contexts.token_of(self.found.deployment)

    @property
    def app(self) -> str:
        """The app named by `--app` or by the context, if any."""
        return self.options.app or self.found.deployment.app

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def ask(self, sentence: str, *, type_name: str = "") -> None:
        """Ask for a confirmation, with `type_name` by typing this name. Then ask for the reason, unless it was
        given."""
        if self.options.yes:
            return
        sentence, type_name = visible(sentence), visible(type_name)
        if not _is_interactive():
            raise click.UsageError(f"{sentence} There is no terminal to confirm this: give --yes.")
        if not _is_confirmed(sentence, type_name):
            raise Failure(Exit.FAILED, "Nothing was done.")
        if not self.options.reason:
            self._ask_why(needed=self.api.get("whoami").get("reasons") == "required")

    def require_reason(self) -> str:
        """The reason for the act. Raises `UsageError` if none was given and no user can be asked."""
        if not self.options.reason:
            if self.options.yes or not _is_interactive():
                raise click.UsageError("a reason is required: give --reason")
            self._ask_why(needed=True)
        return self.options.reason

    def _ask_why(self, *, needed: bool) -> None:
        question = "Why? The audit keeps it" if needed else "Why? The audit keeps it; Enter: no reason"
        reason: str = click.prompt(question, err=True, default=None if needed else "", show_default=False)
        if reason.strip():
            self.options = replace(self.options, reason=reason.strip())
            self.close()  # what is asked from now on goes with the reason


def _is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _is_confirmed(sentence: str, type_name: str) -> bool:
    if not type_name:
        return click.confirm(sentence, err=True)
    click.echo(sentence, err=True)
    typed: str = click.prompt(f"To do it, type {type_name}", err=True, default="", show_default=False)
    return typed == type_name
