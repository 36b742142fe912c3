"""The exit codes, and how errors of the client map to them."""

from enum import IntEnum
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from carillon.errors import CarillonError


class Exit(IntEnum):
    """The exit codes. Scripts may rely on the numbers."""

    DONE = 0
    FAILED = 1
    COMMAND_LINE = 2
    CUT_OFF = 3
    NOT_FOUND = 4
    REFUSED = 5
    NOT_ALLOWED = 6
    UNREACHABLE = 7
    STOPPED = 8
    AILING = 9
    INTERRUPTED = 130


MEANINGS: dict[Exit, str] = {
    Exit.DONE: "done; a service: it has ended its work",
    Exit.FAILED: "failed; stderr says why",
    Exit.COMMAND_LINE: "the command line is wrong, or a question needs a terminal or `--yes`",
    Exit.CUT_OFF: "a service was cut off before its work was done",
    Exit.NOT_FOUND: "not found",
    Exit.REFUSED: "the API refused it: a field breaks a rule, or the state does not allow it; "
    "or the previewed job would fail",
    Exit.NOT_ALLOWED: "the caller is unknown or lacks a role",
    Exit.UNREACHABLE: "the API does not answer",
    Exit.STOPPED: "the watched job was stopped, failed, expired or broke its circuit",
    Exit.AILING: "`status` or `doctor` found something",
    Exit.INTERRUPTED: "interrupted by Ctrl-C",
}


class Failure(click.ClickException):
    """A failure with an exit code: a sentence, and advice."""

    def __init__(self, code: Exit, sentence: str, advice: str = "") -> None:
        super().__init__(f"{sentence}\n{advice}" if advice else sentence)
        self.exit_code = int(code)  # type: ignore[misc]  # click reads it of the instance


def failure_of(error: "CarillonError") -> Failure:
    from carillon import errors
    from services.cli.output import visible

    sentence = visible(str(error))
    match error:
        case errors.NotFound(field=None):
            return Failure(
                Exit.NOT_FOUND,
                sentence,
                "The API may be older than this command, or its address wrong: `carillon context show` tells it.",
            )
        case errors.NotFound():
            return Failure(Exit.NOT_FOUND, sentence)
        case errors.Unauthorized():
            advice = "The caller is that of CARILLON_TOKEN, or of the context: `carillon context list`."
            return Failure(Exit.NOT_ALLOWED, sentence, advice)
        case errors.Forbidden(field="topic"):
            return Failure(Exit.NOT_ALLOWED, sentence, "`carillon topics list` shows each topic's owner.")
        case errors.Forbidden():
            return Failure(Exit.NOT_ALLOWED, sentence, "An admin gives roles; `carillon context show` tells yours.")
        case errors.Invalid(field="reason"):
            return Failure(Exit.REFUSED, sentence, "Give one by --reason.")
        case errors.Invalid() | errors.Conflict():
            return Failure(Exit.REFUSED, sentence)
        case errors.Unavailable():
            advice = "Check that it runs, and its address: `carillon context list`."
            return Failure(Exit.UNREACHABLE, sentence, advice)
        case _:
            return Failure(Exit.FAILED, sentence)
