"""Kustomize, built from its Go module once for all checkouts of this user.

`go.mod` pins its version and `go.sum` the hashes of all that goes into it. This is the newest version that Debian 12's
Go builds, and of the kind that kubectl has had inside since 1.27: what it renders, newer ones render too.
"""

import hashlib
import os
import tempfile
from pathlib import Path

from tests.stack import places
from tests.stack.install import fetch, need_program

_MODULE = Path(__file__).parent
_PACKAGE = "sigs.k8s.io/kustomize/kustomize/v5"


def need_kustomize() -> Path:
    """The program, built if it must and can be. Raises Missing."""
    pinned = hashlib.sha256((_MODULE / "go.mod").read_bytes() + (_MODULE / "go.sum").read_bytes())
    program = places.cache() / f"kustomize-{pinned.hexdigest()[:8]}"
    if not program.exists():
        with places.sole_installer():
            if not program.exists():
                _build(program)
    return program


def _build(program: Path) -> None:
    go = need_program("go", "golang-go")
    with tempfile.TemporaryDirectory(dir=places.cache()) as folder:
        built = Path(folder) / "kustomize"
        command = [go, "build", "-mod=readonly", "-buildvcs=false", "-trimpath", "-o", str(built), _PACKAGE]
        fetch("kustomize", command, cwd=_MODULE, env=os.environ | {"GOWORK": "off", "CGO_ENABLED": "0"})
        built.rename(program)
