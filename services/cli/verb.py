"""The base of all verbs: the common options, a session, and an exit code for each way to end."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

import click

from services.cli import complete
from services.cli.exits import Exit, Failure, failure_of
from services.cli.session import CommonOptions, Session, read_common_options
from shared.core.errors import CarillonError as InsideError

# The client needs httpx, which loads a command line of its own if rich is installed: 80 ms for nothing.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]

Function = Callable[..., None]
Decorator = Callable[[Function], click.Command]


def common_options() -> list[click.Parameter]:
    return [
        click.Option(["--context"], default="", metavar="NAME", shell_complete=complete.contexts,
                     help="Deployment to ask, by its name in `carillon context list`."),
        click.Option(["--json"], is_flag=True, help="Print the API's answer as JSON; a list as an object a line."),
        click.Option(["--quiet", "-q"], is_flag=True, help="Print ids only."),
        click.Option(["--wide"], is_flag=True, help="Do not shorten columns."),
        click.Option(["--utc"], is_flag=True, help="Print times in UTC, not in your zone."),
    ]  # fmt: skip


def options_of(*, of_app: bool, changes: bool, destroys: bool) -> list[click.Parameter]:
    """The options of many verbs."""
    app = click.Option(["--app"], default="", metavar="APP", shell_complete=complete.apps,
                       help="App, by name or id (default: the context's, or the only one).")  # fmt: skip
    reason = click.Option(["--reason"], default="", metavar="TEXT", help="Reason, for the audit.")
    yes = click.Option(["--yes", "-y"], is_flag=True, help="Do not ask.")
    return [option for option, has in ((app, of_app), (reason, changes), (yes, destroys)) if has]


class Verb(click.Command):
    """A verb: its function gets a `Session` first. With `changes` it takes a reason, and with `destroys` it asks first.
    Its help ends with the `examples`, a command line each."""

    def __init__(
        self,
        name: str,
        *,
        changes: bool = False,
        destroys: bool = False,
        of_app: bool = False,
        examples: Sequence[str] = (),
        **more: Any,
    ) -> None:
        own: list[click.Parameter] = more.pop("params", None) or []
        added = options_of(of_app=of_app, changes=changes or destroys, destroys=destroys)
        lines = "".join(f"\n  carillon {example}" for example in examples)
        epilog = f"\b\nExamples:{lines}" if lines else None
        super().__init__(name, params=[*own, *added, *common_options()], epilog=epilog, **more)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options of this verb in full; of the common ones only the names."""
        common = {option.name: option for option in common_options()}
        options = (each for each in self.get_params(ctx) if isinstance(each, click.Option) and each.name not in common)
        own = [record for each in options if (record := each.get_help_record(ctx))]
        with formatter.section("Options"):
            formatter.write_dl([*own, (", ".join(each.opts[0] for each in common.values()), "See `carillon --help`.")])

    def invoke(self, ctx: click.Context) -> Any:
        session = Session(read_common_options(ctx))
        ctx.obj = session
        for name in CommonOptions.__struct_fields__:
            ctx.params.pop(name, None)
        with exit_codes():
            try:
                return super().invoke(ctx)
            finally:
                session.close()


_NEAR = (
    ("list", "find", "search", "ls"),
    ("show", "get", "view", "describe", "status"),
    ("create", "add", "new", "make", "send", "set"),
    ("delete", "remove", "rm", "cancel", "stop", "end"),
    ("change", "update", "edit", "set", "replace"),
    ("pause", "suspend", "hold", "stop"),
    ("resume", "activate", "continue", "start"),
)
"""Verbs that people confuse."""


class Noun(click.Group):
    """A group of verbs: `@noun.verb("list")` decorates each."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            typed, verbs = args[0], self.list_commands(ctx)
            near = [verb for some in _NEAR if typed in some for verb in some if verb in verbs]
            meant = near or get_close_matches(typed, verbs, n=1)
            advice = f"Did you mean {' or '.join(dict.fromkeys(meant))}?" if meant else f"Verbs: {', '.join(verbs)}."
            raise click.UsageError(f"No such command {typed!r}. {advice}", ctx) from error

    def verb(self, name: str, **how: Any) -> Decorator:
        """A verb of this noun (`how`: see `Verb`). The first sentence of the docstring is its help."""

        def decorate(function: Function) -> click.Command:
            made = click.command(name, cls=Verb, **how)(click.pass_obj(function))
            self.add_command(made)
            return made

        return decorate


def noun(name: str) -> Noun:
    """A group of verbs, with its sentence in the command's help."""
    from services.cli.root import NOUNS

    return Noun(name, help=NOUNS[name], short_help=NOUNS[name])


@contextmanager
def exit_codes() -> Iterator[None]:
    """Give every error its documented exit code and sentence."""
    try:
        yield
    except BrokenPipeError:
        # The reader has seen enough, `head` for instance. The rest must not fail at the end of Python.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Exit.DONE)
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted.", err=True)
        sys.exit(Exit.INTERRUPTED)
    except InsideError as error:
        raise Failure(Exit.COMMAND_LINE, str(error)) from None
    except (click.ClickException, click.exceptions.Exit):
        raise
    except Exception as error:
        raise _explain(error) from error


def _explain(error: Exception) -> Exception:
    from carillon.errors import CarillonError
    from services.cli.output import visible

    if isinstance(error, CarillonError):
        return failure_of(error)
    if isinstance(error, ValueError):
        return click.UsageError(visible(str(error)))
    if isinstance(error, OSError):
        return Failure(Exit.FAILED, visible(str(error)))
    if isinstance(error, KeyError):
        return Failure(Exit.FAILED, f"The answer lacks {visible(str(error))}. The API may be of another release.")
    return error
