"""The last release, in a tree of its own: what runs beside this version while a deployment is upgraded.

Until the next release, whatever this version stores and publishes must be read by that one, and the other way round.
"""

import os
import shutil
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

from tests.stack.places import CHECKOUT, home

VERSION = "0.1.0"
COMMIT = "dc2a49e98aa58943701accf97803a0ac6ccb10bd"


def tree() -> Path:
    """The release's files. Made once, from the history of this checkout."""
    place = home() / f"release-{COMMIT}"
    if not place.exists():
        unfinished = place.with_name(f"{place.name}.{os.getpid()}")
        with tarfile.open(fileobj=BytesIO(_git("archive", "--format=tar", COMMIT, "services", "shared"))) as archive:
            archive.extractall(unfinished, filter="data")
        try:
            unfinished.rename(place)
        except OSError:  # somebody else was faster
            shutil.rmtree(unfinished)
    return place


def has_history() -> bool:
    """Whether this checkout has its whole history, as a clone without `--depth`."""
    try:
        return _git("rev-parse", "--is-shallow-repository").strip() == b"false"
    except subprocess.CalledProcessError:
        return False


def _git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", str(CHECKOUT), *words], capture_output=True, check=True, timeout=60).stdout
