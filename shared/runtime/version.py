"""Which release this program is of."""

from functools import cache
from importlib.metadata import version


@cache
def program_version() -> str:
    """The version of the installed program."""
    return version("carillon")
