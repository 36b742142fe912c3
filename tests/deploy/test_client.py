"""The client's distribution: what is in its wheel, what it needs, and that it and the server's go together."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from tests.deploy.manifests import ROOT, project

CLIENT = ROOT / "client"


def wheel_of(source: Path, folder: Path) -> list[str]:
    """The names of the files in the wheel that is built of a folder."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=50)
    (built,) = folder.glob("*.whl")
    return ZipFile(built).namelist()


def tops(names: Iterable[str]) -> set[str]:
    return {name.partition("/")[0] for name in names}


def files_of_pages() -> set[str]:
    """Every file below a folder `pages` of the API that is no Python."""
    paths = (ROOT / "services/api").rglob("pages/**/*")
    return {
        path.relative_to(ROOT).as_posix() for path in paths if path.is_file() and path.suffix not in {".py", ".pyc"}
    }


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return wheel_of(CLIENT, tmp_path_factory.mktemp("client"))


def test_its_wheel_holds_the_package_and_its_licence_alone(names: list[str]) -> None:
    modules = {path.relative_to(CLIENT).as_posix() for path in (CLIENT / "carillon").rglob("*.py")}
    modules |= {"carillon/__init__.pyi", "carillon/py.typed"}
    about = f"carillon_client-{project()['version']}.dist-info"
    assert tops(names) == {"carillon", about}
    assert {name for name in names if name.startswith("carillon/")} == modules
    described = {f"{about}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "licenses/LICENSE")}
    assert {name for name in names if name.startswith(about)} == described


def test_the_servers_wheel_holds_the_dashboard_and_no_client(tmp_path: Path) -> None:
    names = wheel_of(ROOT, tmp_path)
    assert {"services/api/console/pages/overview.html", "services/api/http/pages/assets/htmx.js"} <= files_of_pages()
    assert files_of_pages() <= set(names)
    assert tops(names) == {"services", "shared", f"carillon-{project()['version']}.dist-info"}


def test_both_have_one_version_and_one_licence() -> None:
    theirs, ours = project("client"), project()
    for field in ("version", "license", "requires-python"):
        assert theirs[field] == ours[field]
    assert (CLIENT / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_it_asks_for_little() -> None:
    assert {Requirement(text).name for text in project("client")["dependencies"]} == {"httpcore", "httpx", "msgspec"}
