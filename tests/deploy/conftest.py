"""Kustomize, and what it renders, once for all tests of a run."""

import fcntl
import os
import pickle
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.deploy.manifests import Object
from tests.deploy.rendering import RENDER_SECONDS, Combination, render_all
from tests.stack import MissingPart
from tests.stack.kustomize import need_kustomize
from tests.stack.places import lock
from tests.stack.server import Missing


@pytest.fixture(scope="session")
def kustomize() -> Path:
    """The program. Where it cannot be had: a skip, and a failure with CI=true."""
    try:
        return need_kustomize()
    except Missing as reason:
        raise MissingPart(f"kustomize: {reason}") from None


@pytest.fixture(scope="session")
def renderings(kustomize: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[Combination, list[Object]]:
    """Every combination of components, on the base and in each overlay. Of several workers, one renders for all."""
    folder = tmp_path_factory.mktemp("rendered")
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return render_all(kustomize, folder)
    kept = tmp_path_factory.getbasetemp().parent / "renderings"
    with kept.with_suffix(".lock").open("ab") as file:
        lock(file, fcntl.LOCK_EX, "the lock of whoever renders", seconds=RENDER_SECONDS)
        if not kept.exists():
            kept.write_bytes(pickle.dumps(render_all(kustomize, folder)))
    rendered: Mapping[Combination, list[Object]] = pickle.loads(kept.read_bytes())
    return rendered
