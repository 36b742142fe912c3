"""`python -m tests.stack up|down|status|restart NAME|logs NAME`: the native stack by hand."""

import argparse
import sys

import msgspec

from tests import stack


def main() -> int:
    """Do what the command line says; 1 if a server is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.stack", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, text in (
        ("up", "start what does not run; prints where everything is"),
        ("down", "end it all, and forget the data"),
        ("status", "say what runs"),
    ):
        verbs.add_parser(verb, help=text)
    for verb, text in (
        ("restart", "end one server and start it again with its data"),
        ("kill", "SIGKILL one server"),
        ("logs", "print one server's log"),
    ):
        verbs.add_parser(verb, help=text).add_argument("name", choices=stack.NAMES)
    chosen = parser.parse_args()
    return _do(chosen.verb, getattr(chosen, "name", ""))


def _do(verb: str, name: str) -> int:
    match verb:
        case "up":
            stack.keep()
            return _show(stack.ensure())
        case "status":
            return _show(stack.status())
        case "down":
            stack.down()
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
