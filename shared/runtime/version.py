"""The release of this program."""

from functools import cache
from importlib.metadata import version


@cache
def program_version() -> str:
    return version("carillon")
