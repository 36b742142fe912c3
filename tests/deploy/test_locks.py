"""The locks pin everything with hashes, agree with each other, and name no place of the machine that made them."""

import json
import re
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.deploy.manifests import ROOT, project

LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
ALWAYS = [*project()["dependencies"], *project("client")["dependencies"]]  # the command line stands on the client
WANTED = {
    "run": ALWAYS,
    "embedded": [*ALWAYS, *project()["optional-dependencies"]["embedded"]],
    "otel": [*ALWAYS, *project()["optional-dependencies"]["otel"]],
    "dev": [*ALWAYS, *chain(*project()["optional-dependencies"].values())],
}


def entries(path: Path) -> list[str]:
    """The pinned packages, each with all its lines joined."""
    text = path.read_text("utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]


def versions(path: Path) -> set[tuple[str, str]]:
    """Name and version of every pin, with its marker."""
    return {(line.split("==")[0], re.split(r"\s+--hash", line.split("==")[1])[0]) for line in entries(path)}


def test_there_are_five() -> None:
    assert [path.stem for path in LOCKS] == ["build", "dev", "embedded", "otel", "run"]


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_every_package_is_pinned_with_hashes(path: Path) -> None:
    assert all("==" in line and "--hash=sha256:" in line for line in entries(path))


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_no_address_and_no_folder_is_named(path: Path) -> None:
    text = path.read_text("utf-8")
    assert "://" not in text
    assert not re.search(r"(^|\s)(-i|-f|--(extra-)?index-url|--find-links|/\S)", text, re.MULTILINE)


@pytest.mark.parametrize("stem", WANTED)
def test_what_the_project_asks_for_is_pinned_at_a_version_that_it_allows(stem: str) -> None:
    pinned: dict[str, set[str]] = {}
    for name, version in versions(ROOT / "requirements" / f"{stem}.txt"):
        pinned.setdefault(name, set()).add(version.split(";")[0].strip())
    for text in WANTED[stem]:
        wanted = Requirement(text)
        name = re.sub(r"[-_.]+", "-", wanted.name).lower()
        assert name in pinned, f"make lock: {name} is not in {stem}.txt"
        assert all(wanted.specifier.contains(version, prereleases=True) for version in pinned[name]), text


@pytest.mark.parametrize("stem", ["build", "embedded", "otel", "run"])
def test_no_two_locks_pin_different_versions(stem: str) -> None:
    everything = {name for name, _ in versions(ROOT / "requirements/dev.txt")}
    shared = {pin for pin in versions(ROOT / f"requirements/{stem}.txt") if pin[0] in everything}
    assert {(name, pin.split(";")[0].strip()) for name, pin in shared} <= {
        (name, pin.split(";")[0].strip()) for name, pin in versions(ROOT / "requirements/dev.txt")
    }


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("package-lock.json")), ids=lambda path: path.parent.name)
def test_the_packages_of_npm_are_pinned_with_hashes_and_without_addresses(path: Path) -> None:
    assert "://" not in path.read_text("utf-8")
    packages = {name: pinned for name, pinned in json.loads(path.read_text("utf-8"))["packages"].items() if name}
    assert packages
    assert all(pinned["integrity"].startswith("sha512-") for pinned in packages.values())
