"""Packages from npm, installed once for all checkouts of this user."""

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.stack import places
from tests.stack.install import need_program
from tests.stack.server import Missing

_FILES = ("package.json", "package-lock.json")


def need_packages(project: Path) -> Path:
    """The folder `node_modules` with what a project's lock pins; installed the first time. Raises Missing."""
    need_program("node", "nodejs")
    pinned = hashlib.sha256(b"".join((project / name).read_bytes() for name in _FILES))
    installed = places.cache() / f"npm-{pinned.hexdigest()[:8]}"
    with places.sole_installer():
        if not installed.exists():
            _install(project, installed)
    return installed / "node_modules"


def _install(project: Path, target: Path) -> None:
    npm = need_program("npm", "npm")
    places.say(f"{project.name}: fetching its packages (npm)")
    with tempfile.TemporaryDirectory(dir=places.cache()) as folder:
        made = Path(folder) / "project"
        made.mkdir()
        for name in _FILES:
            shutil.copy(project / name, made)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=made, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise Missing(f"npm could not fetch the packages: {done.stderr.strip()[-400:]}")
        places.put(made, target)
