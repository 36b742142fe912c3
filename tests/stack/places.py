"""Where the stack of this checkout keeps its data, its logs and its downloads, and the locks that guard them."""

import fcntl
import glob
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

HOME_VARIABLE = "CARILLON_TEST_STACK"  # the folder of another stack beside the usual one
CHECKOUT = Path(__file__).resolve().parents[2]

_MEMORY, _MEMORY_BYTES = Path("/dev/shm"), 8 << 30

INSTALL_SECONDS = 900.0  # a slow registry, and Go that builds
_START_SECONDS = 300.0


def say(text: str) -> None:
    """One line of progress; standard output belongs to the endpoints."""
    print(f"[stack] {text}", file=sys.stderr, flush=True)


def home() -> Path:
    """The folder of this checkout's and user's stack. Others may pass through it: PostgreSQL runs as another user."""
    key = hashlib.sha256(str(CHECKOUT).encode()).hexdigest()[:8]
    usual = _base() / f"carillon-stack-{os.getuid()}-{key}"
    folder = Path(os.environ.get(HOME_VARIABLE) or usual)
    folder.mkdir(mode=0o711, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to somebody else")
    return folder


def _base() -> Path:
    """Memory where there is plenty: servers that sync each write then cost processor time alone. A killed server's data
    survive it."""
    if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).total >= _MEMORY_BYTES:
        return _MEMORY
    return Path(tempfile.gettempdir())


def beside(worker: str) -> Path:
    """The folder of the stack that a test worker has beside the usual one."""
    usual = home()
    return usual.with_name(f"{usual.name}-{worker}")


def homes() -> list[Path]:
    """The folders of this checkout's stack and of those beside it."""
    usual = home()
    return [usual, *usual.parent.glob(f"{glob.escape(usual.name)}-gw[0-9]*")]


@contextmanager
def at(folder: Path) -> Iterator[None]:
    """Speak of the stack in that folder meanwhile."""
    before = os.environ.get(HOME_VARIABLE)
    os.environ[HOME_VARIABLE] = str(folder)
    try:
        yield
    finally:
        os.environ.pop(HOME_VARIABLE)
        if before is not None:
            os.environ[HOME_VARIABLE] = before


def cache() -> Path:
    """What is downloaded once for all checkouts of this user."""
    chosen = os.environ.get("CARILLON_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(chosen) if chosen else Path(base) / "carillon"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def put(made: Path, target: Path) -> None:
    """Put a finished folder in its place at once, unless somebody else was faster."""
    try:
        made.rename(target)
    except OSError:
        if not target.exists():
            raise


@contextmanager
def sole_starter() -> Iterator[None]:
    """Only one process at a time starts or stops servers. The kernel lets go of the lock when its holder dies."""
    with _opened("starter.lock") as file:
        lock(file, fcntl.LOCK_EX, "the lock of whoever starts servers", seconds=_START_SECONDS)
        yield


@contextmanager
def sole_installer() -> Iterator[None]:
    """Only one of this user's processes at a time fetches what is missing, whichever stack it is for."""
    with (cache() / "installer.lock").open("ab") as file:
        lock(file, fcntl.LOCK_EX, "the lock of whoever installs", seconds=INSTALL_SECONDS)
        yield


def lock(file: IO[bytes], how: int, what: str, *, seconds: float) -> None:
    """Take a lock of a file, as `fcntl.flock` does. Raises `TimeoutError` after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return fcntl.flock(file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(f"another process has held {what} ({file.name}) for {seconds:g} s") from None
            time.sleep(0.02)


class InUse:
    """Held by each test session: the last one to leave stops a stack that a session started."""

    def __init__(self) -> None:
        self._file = _opened("users.lock")
        fcntl.flock(self._file, fcntl.LOCK_SH)

    def leave(self) -> bool:
        """Give it up; True if nobody else uses the stack now."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            self._file.close()
        return True


def _opened(name: str) -> IO[bytes]:
    return (home() / name).open("ab")
