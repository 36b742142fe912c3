"""Packages from npm, installed once for all checkouts of this user."""

import hashlib
import shutil
import tempfile
from pathlib import Path

from tests.stack import places
from tests.stack.install import fetch, need_program

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
    with tempfile.TemporaryDirectory(dir=places.cache()) as folder:
        made = Path(folder) / "project"
        made.mkdir()
        for name in _FILES:
            shutil.copy(project / name, made)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        fetch(f"the packages of {project.name}", command, cwd=made)
        places.put(made, target)
