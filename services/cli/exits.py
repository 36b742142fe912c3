"""The exit codes, and what of them an error of the client becomes."""

from enum import IntEnum
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from carillon.errors import CarillonError


class Exit(IntEnum):
    """How a command ended. Scripts may rely on the numbers."""

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
    Exit.DONE: "done; a service: drained",
    Exit.FAILED: "failed; stderr says why",
    Exit.COMMAND_LINE: "a wrong command line, or a question that nobody was there to answer",
    Exit.CUT_OFF: "a service was cut off before it had drained",
    Exit.NOT_FOUND: "there is no such thing",
    Exit.REFUSED: "the API refused it: a field breaks a rule, or the state does not allow it; "
    "or the job that was previewed would fail",
    Exit.NOT_ALLOWED: "the caller is unknown, or may not do this",
    Exit.UNREACHABLE: "the API does not answer",
    Exit.STOPPED: "the watched job was stopped, or broke its circuit",
    Exit.AILING: "`status` or `doctor` found something: not all is well",
    Exit.INTERRUPTED: "interrupted",
}


class Failure(click.ClickException):
    """An end with a code of its own: a sentence, and what to do next."""

    def __init__(self, code: Exit, sentence: str, advice: str = "") -> None:
        super().__init__(f"{sentence}\n{advice}" if advice else sentence)
        self.exit_code = int(code)  # type: ignore[misc]  # click reads it of the instance


def failure_of(error: "CarillonError") -> Failure:
    """What an error of the client tells the person at the terminal."""
    from carillon import errors
    from services.cli.output.text import visible

    sentence = visible(str(error))
    match error:
        case errors.NotFound(field=None):
            return Failure(Exit.NOT_FOUND, sentence, "Is the API older than this command, or its address another one?")
        case errors.NotFound():
            return Failure(Exit.NOT_FOUND, sentence)
        case errors.Unauthorized():
            advice = "Who asks is said by CARILLON_TOKEN, else by the context: `carillon context list`."
            return Failure(Exit.NOT_ALLOWED, sentence, advice)
        case errors.Forbidden(field="status"):
            return Failure(Exit.REFUSED, sentence)
        case errors.Forbidden(field="topic"):
            return Failure(Exit.NOT_ALLOWED, sentence, "`carillon topics list` shows each topic's owner.")
        case errors.Forbidden():
            return Failure(Exit.NOT_ALLOWED, sentence, "An admin gives roles; `carillon context show` tells yours.")
        case errors.Invalid(field="reason"):
            return Failure(Exit.REFUSED, sentence, "`--reason` gives one.")
        case errors.Invalid() | errors.Conflict():
            return Failure(Exit.REFUSED, sentence)
        case errors.Unavailable():
            advice = "Is it up, and is the address right? `carillon context list` shows where it is looked for."
            return Failure(Exit.UNREACHABLE, sentence, advice)
        case _:
            return Failure(Exit.FAILED, sentence)
