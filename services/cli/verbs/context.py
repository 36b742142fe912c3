"""`carillon context` and `carillon completion`."""

import sys

import click
from click.shell_completion import get_completion_class
from msgspec.structs import asdict

from services.cli import complete
from services.cli.contexts import ContextsFile, KnownDeployment, contexts_path, read_contexts, write_contexts
from services.cli.exits import Exit, Failure
from services.cli.nouns import Noun
from services.cli.output import Json, TableColumn
from services.cli.root import NOUNS
from services.cli.session import Session
from shared.runtime.private import without_secrets

context = Noun("context")
MASK = "***"
_name = click.argument("name", shell_complete=complete.contexts)


@context.verb(
    "add",
    examples=(
        "context add production --url https://carillon.example.com --user ana@example.com",
        "context add staging --url https://staging.example.com --token -",
    ),
)
@click.argument("name")
@click.option("--url", required=True, help="URL of its API, such as https://carillon.example.com.")
@click.option("--token", help="Token of a service; `-` reads it from stdin, so that no shell remembers it.")
@click.option("--token-command", help="Command that prints the token.")
@click.option("--user", help="E-mail address of a person, for a trusted proxy.")
@click.option("--default-app", help="App to use if no --app is given.")
def add(
    session: Session,
    name: str,
    url: str,
    token: str | None,
    token_command: str | None,
    user: str | None,
    default_app: str | None,
) -> None:
    """Add or replace the address and credentials of a deployment. The first one becomes the current one."""
    if [token, token_command, user].count(None) < 2:
        raise click.UsageError("use only one of --token, --token-command and --user")
    if token == "-":
        token = sys.stdin.readline().strip()
    file = read_contexts()
    file.contexts[name] = KnownDeployment(
        url=_check_url(url),
        token=token or "",
        token_command=token_command or "",
        user=user or "",
        app=default_app or "",
    )
    file.current = file.current or name
    write_contexts(file)
    session.out.tell(f"Stored context {name} in {contexts_path()}.")


@context.verb("use")
@_name
def use(session: Session, name: str) -> None:
    """Make a context the current one."""
    file = _require(name)
    file.current = name
    write_contexts(file)
    session.out.tell(f"Commands now ask {name}, {without_secrets(file.contexts[name].url)}.")


@context.verb("list")
def list_contexts(session: Session) -> None:
    """List the contexts, without their secrets."""
    file = read_contexts()
    rows = [{"name": name, "inUse": name == file.current, **_mask(each)} for name, each in file.contexts.items()]
    columns = (
        TableColumn("", lambda row: "*" if row["inUse"] else " ", "word"),
        TableColumn("NAME", lambda row: row["name"]),
        TableColumn("URL", lambda row: row["url"]),
        TableColumn("WHO", _who),
        TableColumn("APP", lambda row: row["app"]),
    )
    session.out.show_list(rows, columns, id="name", limit=0)


@context.verb("show")
def show(session: Session) -> None:
    """Show the deployment that commands ask, and your rights."""
    found = session.found
    caller = session.api.get("whoami")
    answer = {"context": found.named_by, "url": without_secrets(found.deployment.url), "app": session.app, **caller}
    session.out.show(answer, lambda: list(answer.items()), id="context")


@context.verb("remove")
@_name
def remove(session: Session, name: str) -> None:
    """Remove a context."""
    file = _require(name)
    del file.contexts[name]
    file.current = "" if file.current == name else file.current
    write_contexts(file)
    session.out.tell(f"Removed context {name}.")


def _require(name: str) -> ContextsFile:
    file = read_contexts()
    if name not in file.contexts:
        known = ", ".join(sorted(file.contexts)) or "none"
        raise Failure(Exit.NOT_FOUND, f"There is no context {name!r}. Contexts: {known}.")
    return file


def _check_url(url: str) -> str:
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise click.UsageError(
            f"--url must be a URL such as https://carillon.example.com, not {without_secrets(url)!r}"
        )
    return url.rstrip("/")


def _mask(deployment: KnownDeployment) -> dict[str, str]:
    fields: dict[str, str] = asdict(deployment)
    shown = {name: without_secrets(text) for name, text in fields.items()}
    return shown | {"token": MASK if deployment.token else ""}


def _who(row: Json) -> str:
    return str(row["user"] or (f"$({row['token_command']})" if row["token_command"] else row["token"]))


VARIABLE = "_CARILLON_COMPLETE"
HOW = {
    "bash": 'eval "$(carillon completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(carillon completion zsh)" in ~/.zshrc',
    "fish": "carillon completion fish > ~/.config/fish/completions/carillon.fish",
}


@click.command("completion", help=NOUNS["completion"] + " To keep it: " + "; ".join(HOW.values()) + ".")
@click.argument("shell", type=click.Choice(list(HOW)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script for this shell."""
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "carillon", VARIABLE).source())
