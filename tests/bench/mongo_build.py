"""Which MongoDB the benchmarks run on.

It is the stand-in's build from its sources, made once: the wheel's scans where it should not in big collections.
Where it cannot be made it is the wheel's all the same, and the report says so.
"""

import os
import shutil
import subprocess
from pathlib import Path

from tests.stack import places
from tests.stack.mongodb import BINARY_VARIABLE, URL_VARIABLE

CRATE, VERSION = "secantus-mdb", "0.5.3-beta.196"


def chosen() -> str:
    """Make the choice known to the stack by its variable; the answer is what to call it in a report."""
    if os.environ.get(URL_VARIABLE):
        return f"the server that {URL_VARIABLE} names"
    if os.environ.get(BINARY_VARIABLE):
        return f"the build that {BINARY_VARIABLE} names"
    root = places.cache() / f"{CRATE}-{VERSION}"
    binary = root / "bin" / "secantusd-rs"
    reason = None if binary.exists() else _built(root)
    if reason is not None:
        places.say(f"mongo: the wheel's build, though it is slow with big collections: {reason}")
        return f"secantusd-rs of the wheel ({reason}: expect less of whatever touches many documents)"
    os.environ[BINARY_VARIABLE] = str(binary)
    return f"secantusd-rs of {CRATE} {VERSION}"


def _built(root: Path) -> str | None:
    """Why there is no build, or None when it was made."""
    cargo = shutil.which("cargo")
    if cargo is None:
        return "no cargo on the PATH"
    places.say(f"mongo: building {CRATE} {VERSION} with cargo, once: some ten minutes")
    words = ("install", CRATE, "--version", VERSION, "--ignore-rust-version", "--locked", "--root", str(root))
    done = subprocess.run([cargo, *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode == 0:
        return None
    print(done.stderr[-2000:], flush=True)
    return "cargo could not build it"
