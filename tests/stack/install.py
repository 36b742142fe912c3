"""Getting what a machine lacks: Debian's packages, when we are root."""

import functools
import os
import shutil
import subprocess
import threading

from tests.stack import places
from tests.stack.server import Missing

_apt_lock = threading.Lock()


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
        places.say(f"installing {package} (apt-get)")
        _update()
        _apt("install", "-y", "--no-install-recommends", package)


@functools.cache
def _update() -> None:
    _apt("update")


def _apt(*words: str) -> None:
    # invoke-rc.d starts no service in run level 1
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    command = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise Missing(f"apt-get {' '.join(words)} failed: {done.stderr.strip()[-400:]}")
