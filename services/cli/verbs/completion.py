"""`carillon completion`: what makes a shell complete commands and names."""

import click
from click.shell_completion import get_completion_class

from services.cli.root import NOUNS

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
