"""Jars from Maven, fetched once for all checkouts of this user."""

import hashlib
import subprocess
import tempfile
from pathlib import Path

from tests.stack import places
from tests.stack.install import need_program
from tests.stack.server import Missing


def need_jars(name: str, pom: Path) -> Path:
    """The folder of the jars that a pom lists; fetched the first time. Raises Missing."""
    jars = places.cache() / f"{name}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:8]}"
    if not jars.exists():
        maven = need_program("mvn", "maven")
        places.say(f"{name}: fetching its jars (mvn)")
        with tempfile.TemporaryDirectory(dir=places.cache()) as folder:
            fetched = Path(folder) / "jars"
            _fetch(maven, name, pom, fetched)
            places.put(fetched, jars)
    return jars


def _fetch(maven: str, name: str, pom: Path, into: Path) -> None:
    goal = ["-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={into}"]
    done = subprocess.run([maven, *goal], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        said = done.stdout + done.stderr
        told = next((line for line in said.splitlines() if "ERROR" in line), said.strip())
        raise Missing(f"Maven could not fetch the jars of {name}: {told[:400]}")
