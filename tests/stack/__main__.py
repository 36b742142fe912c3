"""`python -m tests.stack up [NAME...]|down|status|deps|restart NAME|kill NAME|logs NAME`: the native stack by hand."""

import argparse
import sys
from collections.abc import Sequence

import msgspec

from tests import stack
from tests.stack.deps import fetch_all


def main() -> int:
    """Do what the command line says; 1 if a server is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.stack", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="start what does not run (or only these servers); prints where everything is")
    up.add_argument("names", nargs="*", metavar="NAME", help=", ".join(stack.NAMES))
    for verb, text in (
        ("down", "end it all, and forget the data"),
        ("status", "say what runs"),
        ("deps", "fetch what this machine lacks"),
    ):
        verbs.add_parser(verb, help=text)
    for verb, text in (
        ("restart", "end one server and start it again with its data"),
        ("kill", "SIGKILL one server"),
        ("logs", "print one server's log"),
    ):
        verbs.add_parser(verb, help=text).add_argument("name", choices=stack.NAMES)
    chosen = parser.parse_args()
    if unknown := set(getattr(chosen, "names", ())) - set(stack.NAMES):
        parser.error(f"no such server: {', '.join(sorted(unknown))}")
    return _do(chosen.verb, getattr(chosen, "name", ""), getattr(chosen, "names", ()))


def _do(verb: str, name: str, names: Sequence[str]) -> int:
    match verb:
        case "up":
            stack.keep()
            return _show(stack.ensure(*names))
        case "status":
            return _show(stack.status())
        case "down":
            stack.down()
        case "deps":
            for reason in fetch_all():
                print(f"{reason}\nThe tests that need it are skipped; with CI=true they fail.", file=sys.stderr)
        case "restart":
            stack.restart(name)
        case "kill":
            stack.kill(name)
        case "logs":
            print(stack.log_text(name))
        case _:
            raise ValueError(verb)
    return 0


def _show(endpoints: stack.Endpoints) -> int:
    shown = {**endpoints.addresses, "pids": endpoints.pids, "missing": endpoints.missing}
    print(msgspec.json.format(msgspec.json.encode(shown), indent=2).decode())
    return 1 if endpoints.missing else 0


if __name__ == "__main__":
    sys.exit(main())
