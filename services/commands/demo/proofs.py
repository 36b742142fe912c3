"""What an act of the demo has proven, and how that is shown."""

import click
from msgspec import Struct


class Proof(Struct, frozen=True):
    """A promise, as a sentence with the figures that were seen, and what speaks against it."""

    promise: str
    faults: list[str] = []


def prove(promise: str, *checks: tuple[bool, str]) -> Proof:
    """The promise, with the sentence of each check that is `True` against it."""
    return Proof(promise, [sentence for is_wrong, sentence in checks if is_wrong])


def show(proofs: list[Proof]) -> bool:
    """Print each of them; whether all promises were kept."""
    for proof in proofs:
        if not proof.faults:
            click.echo(f"  {click.style('✓', fg='green', bold=True)} {proof.promise}")
        for sentence in proof.faults:
            click.echo(f"  {click.style('✗', fg='red', bold=True)} {sentence}", err=True)
    return not any(proof.faults for proof in proofs)
