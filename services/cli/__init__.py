"""The `carillon` command: the programs of a deployment, and the verbs that act on a running one."""

from services.cli.root import main

__all__ = ["main"]
