"""What kustomize makes of the base and of the overlays with each combination of components."""

import shutil
import subprocess
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.deploy.manifests import K8S, Object, documents
from tests.tiers import and_rarely

COMPONENTS = ("autoscaling", "monitoring", "network-policies", "tls")
BY_CPU = "autoscaling-by-cpu"
"""Stands in the place of `autoscaling`, never beside it."""

PLACES = ("base", "laptop", "production")
RENDER_SECONDS = 50.0


class Combination(NamedTuple):
    """One of the places with some of the components switched on."""

    place: str
    components: tuple[str, ...]

    def __str__(self) -> str:
        return "-".join([self.place, *self.components])


def all_combinations(*components: str) -> list[Any]:
    """Values of a parametrized test: every place with every set of components that includes these. The gate has each
    place with just these and with all."""
    every = (*COMPONENTS, BY_CPU)
    sets = [chosen for size in range(len(every) + 1) for chosen in combinations(every, size)]
    fit = [chosen for chosen in sets if {*components} <= {*chosen} and not {"autoscaling", BY_CPU} <= {*chosen}]
    wanted = [Combination(place, chosen) for place in PLACES for chosen in fit]
    usual = [each for each in wanted if each.components in {components, COMPONENTS}]
    return and_rarely(*usual, rarely=[each for each in wanted if each not in usual])


class Renderings(dict[Combination, list[Object]]):
    """The objects of each combination, rendered from a copy in a folder when they are first asked for."""

    def __init__(self, kustomize: Path, folder: Path) -> None:
        super().__init__()
        self._build = [str(kustomize), "build"]
        self._tree = shutil.copytree(K8S, folder / "k8s")

    def __missing__(self, combination: Combination) -> list[Object]:
        self[combination] = render(self._build, _switch_on(self._tree, combination))
        return self[combination]


def render(command: Sequence[str], folder: Path) -> list[Object]:
    """What one folder is rendered to. Raises `AssertionError` with what kustomize says."""
    done = subprocess.run([*command, str(folder)], capture_output=True, text=True, check=False, timeout=RENDER_SECONDS)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return [document for document in yaml.load_all(done.stdout, yaml.CSafeLoader) if document is not None]


def _switch_on(tree: Path, combination: Combination) -> Path:
    """A folder in which just these components are on."""
    folder = tree / "overlays" / str(combination)
    if combination.place == "base":
        folder.mkdir()
        kustomization: Object = {"kind": "Kustomization", "resources": ["../../base"]}
    else:
        shutil.copytree(K8S / "overlays" / combination.place, folder, dirs_exist_ok=True)
        (kustomization,) = documents(folder / "kustomization.yaml")
    kustomization["components"] = [f"../../components/{component}" for component in combination.components]
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return folder
