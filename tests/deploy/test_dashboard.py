"""The dashboard's files: what is others' is unchanged and licensed."""

import hashlib
import tomllib

from tests.deploy.manifests import ROOT

FRAME = ROOT / "services/api/http/pages"
VENDORED = tomllib.loads((FRAME / "VENDORED.toml").read_text("utf-8"))
OURS = {"carillon.css", "carillon.js", "icon.svg"}


def test_what_is_others_is_as_they_published_it_and_has_its_licence() -> None:
    digests = {name: digest for package in VENDORED.values() for name, digest in package["files"].items()}
    assert {name: hashlib.sha256((FRAME / "assets" / name).read_bytes()).hexdigest() for name in digests} == digests
    assert all(any("LICENSE" in name for name in package["files"]) for package in VENDORED.values())


def test_what_nobody_vendored_is_ours() -> None:
    vendored = {name for package in VENDORED.values() for name in package["files"]}
    assert {path.name for path in (FRAME / "assets").iterdir()} == OURS | vendored
