"""Getting what a machine lacks, as `make deps` does. No test does: a registry may be slow, and a test then hangs."""

import functools
import os
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.stack import places
from tests.stack.server import Missing

_apt_lock = threading.Lock()


def fetch(what: str, command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
    """Run a program that asks a registry. Raises Missing, and always so while a test runs."""
    if "PYTEST_CURRENT_TEST" in os.environ:
        raise Missing(f"{what} is not on this machine, and no test fetches it: run `make deps` first")
    places.say(f"fetching {what} ({Path(command[0]).name})")
    seconds = places.INSTALL_SECONDS / 2
    try:
        done = subprocess.run(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=seconds,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Missing(f"{what} could not be fetched within {seconds:g} s") from None
    if done.returncode:
        raise Missing(f"{what} could not be fetched: {(done.stdout + done.stderr).strip()[-400:]}")


def need_program(program: str, package: str) -> str:
    """The path of a program, installed from Debian's package if it must and can be. Raises Missing."""
    found = shutil.which(program)
    if found is None:
        apt_install(package, wanted=program)
        found = shutil.which(program)
    if found is None:
        raise Missing(f"Debian's package {package} brought no {program}")
    return found


def apt_install(package: str, *, wanted: str) -> None:
    """Install it, quietly, without letting it start a service of the system. Raises Missing."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Missing(f"{wanted} is not installed, and only root on a Debian system could install {package} here")
    with _apt_lock:
        _update()
        _apt(package, "install", "-y", "--no-install-recommends", package)


@functools.cache
def _update() -> None:
    _apt("Debian's list of packages", "update")


def _apt(what: str, *words: str) -> None:
    # invoke-rc.d starts no service in run level 1
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    fetch(what, ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", *words], env=env)
