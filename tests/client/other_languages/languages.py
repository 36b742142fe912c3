"""How a client that openapi-generator makes becomes a program: in TypeScript, and in Go.

Each folder beside this file is a project as a user may have it: its locks, what it asks of the generator, and programs
that use the client.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.stack.install import need_program
from tests.stack.npm import need_packages
from tests.stack.openapi_generator import generate

PROJECTS = Path(__file__).parent
CLIENT = "carillon"
COMPILE_SECONDS = 150

Start = Callable[[str], list[str]]
"""The command that starts the program with this name."""

Build = Callable[[Path, Path], Start]
"""Makes a client of a document, in a new folder, and compiles it with the programs."""


def build_typescript(document: Path, folder: Path) -> Start:
    packages = need_packages(PROJECTS / "typescript")
    project = _copy("typescript", folder)
    (project / "node_modules").symlink_to(packages)
    generate(document, project / "generator.yaml", project / CLIENT)
    _run([need_program("node", "nodejs"), "node_modules/typescript/bin/tsc"], project)
    return lambda name: ["node", str(project / "built" / f"{name}.js")]


def build_go(document: Path, folder: Path) -> Start:
    go = need_program("go", "golang-go")
    project = _copy("go", folder)
    generate(document, project / "generator.yaml", project / CLIENT)
    _run([go, "build", "-mod=readonly", "-buildvcs=false", "-o", "built/", "./first_job", "./tour"], project)
    return lambda name: [str(project / "built" / name)]


def _copy(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(PROJECTS / name, folder / name))


def _run(command: list[str], project: Path) -> None:
    env = os.environ | {"GOWORK": "off", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
    done = subprocess.run(
        command,
        cwd=project,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=COMPILE_SECONDS,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
