"""What kustomize makes of the base and of the overlays with each combination of components."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.deploy.manifests import K8S, Object, documents

COMPONENTS = ("autoscaling", "monitoring", "network-policies", "tls")
PLACES = ("base", "laptop", "production")
RENDER_SECONDS = 50.0


class Combination(NamedTuple):
    """One of the places with some of the components switched on."""

    place: str
    components: tuple[str, ...]

    def __str__(self) -> str:
        return "-".join([self.place, *self.components])


def all_combinations() -> list[Combination]:
    """Every place with every set of components."""
    sets = [chosen for size in range(len(COMPONENTS) + 1) for chosen in combinations(COMPONENTS, size)]
    return [Combination(place, chosen) for place in PLACES for chosen in sets]


def render_all(kustomize: Path, folder: Path) -> Mapping[Combination, list[Object]]:
    """All of them, rendered from a copy in this folder."""
    tree = shutil.copytree(K8S, folder / "k8s")
    wanted = {combination: _switch_on(tree, combination) for combination in all_combinations()}
    with ThreadPoolExecutor() as pool:
        rendered = pool.map(lambda place: render([str(kustomize), "build"], place), wanted.values())
        return dict(zip(wanted, rendered, strict=True))


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
