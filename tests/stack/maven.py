"""Jars from Maven, fetched once for all checkouts of this user."""

import hashlib
import tempfile
from pathlib import Path

from tests.stack import places
from tests.stack.install import fetch, need_program

_READ_MILLISECONDS = 60_000  # half an hour otherwise


def need_jars(name: str, pom: Path) -> Path:
    """The folder of the jars that a pom lists; fetched the first time. Raises Missing."""
    jars = places.cache() / f"{name}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:8]}"
    if not jars.exists():
        maven = need_program("mvn", "maven")
        with tempfile.TemporaryDirectory(dir=places.cache()) as folder:
            fetched = Path(folder) / "jars"
            goal = ["dependency:copy-dependencies", f"-DoutputDirectory={fetched}"]
            options = ["-q", "-B", f"-Dmaven.wagon.rto={_READ_MILLISECONDS}", "-f", str(pom)]
            fetch(f"the jars of {name}", [maven, *options, *goal])
            places.put(fetched, jars)
    return jars
