"""Kustomize, and what it renders, once for all tests of a run."""

from pathlib import Path

import pytest

from tests.deploy.rendering import Renderings
from tests.stack import MissingPart
from tests.stack.kustomize import need_kustomize
from tests.stack.server import Missing


@pytest.fixture(scope="session")
def kustomize() -> Path:
    """The program. Where it cannot be had: a skip, and a failure with CI=true."""
    try:
        return need_kustomize()
    except Missing as reason:
        raise MissingPart(f"kustomize: {reason}") from None


@pytest.fixture(scope="session")
def renderings(kustomize: Path, tmp_path_factory: pytest.TempPathFactory) -> Renderings:
    """The base and the overlays with any components. One worker runs all tests of this folder (`tests/rows.py`)."""
    return Renderings(kustomize, tmp_path_factory.mktemp("rendered"))
