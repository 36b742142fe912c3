"""Verbs and nouns. A verb has the common options, a session, and an exit code for each way to end. A noun is a group of
verbs: a function becomes a verb by `@noun.verb`. A noun whose things lie below a path of the API has its verbs `list`,
`show`, `delete`, and moves such as `pause`, by declaration: from columns and fields of the things.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, Literal

import click
from msgspec import Struct

from services.cli import complete, options
from services.cli.exits import Exit, Failure, failure_of
from services.cli.output import Fields, Json, Output, TableColumn, state_column, visible
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

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        *_, given = self.make_parser(ctx).parse_args(args=list(args))
        for each in given:
            if isinstance(each, click.Option) and not (each.multiple or each.is_flag) and given.count(each) > 1:
                raise click.UsageError(f"give {each.opts[0]} only once", ctx)
        return super().parse_args(ctx, args)

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

    if isinstance(error, CarillonError):
        return failure_of(error)
    if isinstance(error, ValueError):
        return click.UsageError(visible(str(error)))
    if isinstance(error, OSError):
        return Failure(Exit.FAILED, visible(str(error)))
    if isinstance(error, KeyError):
        return Failure(Exit.FAILED, f"The answer lacks {visible(str(error))}. The API may be of another release.")
    return error


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


class FieldColumn(Struct, frozen=True):
    """A column of a field, or of the words of `tell`. A `time` is shown in the reader's zone, a `state` in colour."""

    field: str
    kind: Literal["text", "id", "number", "word", "time", "state"] = "text"
    title: str = ""
    tell: Callable[[Json], Any] | None = None

    def of(self, out: Output) -> TableColumn:
        title = self.title or self.field.replace("_", " ").upper()
        tell = self.tell or (lambda thing: thing[self.field])
        match self.kind:
            case "time":
                return TableColumn(title, lambda thing: out.when(tell(thing)), "word")
            case "state":
                return state_column(title, tell)
            case kind:
                return TableColumn(title, tell, kind)


class ApiNoun(Noun):
    """A noun whose things lie below `path` of the API, each by its field `id`. A verb about one takes what `find` reads
    as the id; all verbs take the options `scope`, which go into the query."""

    def __init__(
        self,
        name: str,
        *,
        path: str,
        id: str,
        columns: Sequence[FieldColumn],
        fields: Callable[[Output, Json], Fields],
        find: Callable[..., str],
        complete: Callable[..., Any],
        scope: Sequence[options.Decorate] = (),
    ) -> None:
        super().__init__(name)
        self._path = path
        self._id = id
        self._word = name.removesuffix("s")
        self._columns = columns
        self._fields = fields
        self._find = find
        self._named = options.join(click.argument("typed", metavar=id.upper(), shell_complete=complete), *scope)
        self._scope = scope

    def add_list(self, text: str, *filters: options.Decorate) -> None:
        @self.verb("list", help=text)
        @options.join(*filters, *self._scope, options.limit)
        def list_things(session: Session, limit: int | None, **query: Any) -> None:
            found = session.api.items(self._path, limit=limit, **query)
            session.out.show_list(found, [each.of(session.out) for each in self._columns], id=self._id, limit=limit)

    def add_show(self, text: str) -> None:
        @self.verb("show", help=text)
        @self._named
        def show(session: Session, typed: str, **query: Any) -> None:
            thing = session.api.get(self._path, self._find(session, typed, **query), **query)
            session.out.show(thing, lambda: self._fields(session.out, thing), id=self._id)

    def add_delete(self, text: str, *, ask: str) -> None:
        """The question `ask` names the thing by `{0}`."""

        @self.verb("delete", destroys=True, help=text)
        @self._named
        def delete(session: Session, typed: str, **query: Any) -> None:
            found = self._find(session, typed, **query)
            session.ask(ask.format(found))
            session.api.delete(self._path, found, **query)
            session.out.confirm({self._id: found}, f"Deleted {self._word} {found}.", id=self._id)

    def add_move(self, move: str, text: str, *, said: str, id: str = "") -> None:
        """The sentence `said` names the thing by `{0}`, and fields of the answer by their names. `--quiet` prints the
        field `id`, by default the thing's."""

        @self.verb(move, changes=True, help=text)
        @self._named
        def do(session: Session, typed: str, **query: Any) -> None:
            found = self._find(session, typed, **query)
            answer = session.api.post(self._path, found, move, **query)
            session.out.confirm(answer, said.format(found, **answer), id=id or self._id)
