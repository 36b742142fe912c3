"""Kustomize, and what it renders, once for all tests of a session."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.deploy.manifests import Object
from tests.deploy.rendering import Combination, render_all
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
def renderings(kustomize: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[Combination, list[Object]]:
    """Every combination of components, on the base and in each overlay."""
    return render_all(kustomize, tmp_path_factory.mktemp("rendered"))
