"""The documentation as a site: it builds, each page has its place in it, and each link leads somewhere."""

import hashlib
import importlib.util
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator
from playwright.async_api import expect

from shared.runtime.configuration import list_settings
from shared.runtime.settings import Settings
from tests.browser.screen import chromium

pytestmark = pytest.mark.later("builds the documentation as a site")

ROOT = Path(__file__).parents[2]
SHIM = "e8e412dbcfea9b7e31b5ffa288d7b6035915e714c542f4176a0cdbe262fc9609"  # npm's iframe-worker 1.0.4, shim/index.js


@cache
def hooks() -> Any:
    """The module that makes the pages of the reference."""
    made = importlib.util.spec_from_file_location("hooks", ROOT / "docs/_site/hooks.py")
    assert made is not None
    assert made.loader is not None
    module = importlib.util.module_from_spec(made)
    made.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does: a page that the navigation lacks, or a broken link, fails."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=50)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_every_page_and_route_is_there(site: Path) -> None:
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / f"{page.stem}.html").is_file(), page
    jobs = (site / "reference" / "jobs.html").read_text()
    assert "GET /apps/{appId}/jobs/{jobId}" in jobs
    assert "completedTokens" in jobs
    settings = (site / "settings.html").read_text()
    assert [each.name for each in list_settings(Settings()) if f"<code>{each.name} = " not in settings] == []


def test_the_front_page_says_which_version_it_describes() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"**Version** `{version}`" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize(
    "place",
    [
        "README.md", "client/README.md", "client/pyproject.toml", "docs/index.md", "mkdocs.yml", "pyproject.toml",
        "services/api/http/openapi.py", "services/cli/root.py",
    ],
)  # fmt: skip
def test_one_sentence_says_everywhere_what_carillon_does(place: str) -> None:
    assert "imed messages at scale: pushes, mail, SMS, webhooks and events." in (ROOT / place).read_text()


async def test_examples_of_the_reference_are_what_the_routes_take() -> None:
    components = hooks()._read_document()["components"]
    for name, example in hooks()._EXAMPLES.items():
        kind = {"$ref": f"#/components/schemas/{name}", "components": components}
        assert [error.message for error in OAS31Validator(kind).iter_errors(example)] == [], name


async def test_every_route_that_creates_shows_a_request_and_its_answer() -> None:
    document = hooks()._read_document()
    operations = [
        (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if method != "delete" and any("content" in operation["responses"].get(status, {}) for status in ("201", "202"))
    ]
    page = hooks()._page("All", operations, document["components"]["schemas"])
    shown = re.findall(r"^## `(?:POST|PUT) [^`]*`$(.*?)(?=^## )", page, re.MULTILINE | re.DOTALL)
    assert len(shown) == len(operations) > 8
    assert [route for route in shown if "```\ncurl " not in route or "```json\n" not in route] == []


def test_it_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|img|iframe)[^>]+src="([^"]+)"|<link[^>]+href="([^"]+)"', page.read_text())
        foreign = [each for pair in loaded for each in pair if each.startswith(("http:", "https:", "//"))]
        assert not foreign, (page, foreign)


def test_every_picture_says_what_it_shows(site: Path) -> None:
    shown = [
        tag for page in site.rglob("*.html") for tag in re.findall(r'<img[^>]+src="pictures/[^>]+>', page.read_text())
    ]
    told = [re.search(r'alt="([^"]{40,})"', tag) for tag in shown]
    assert len(shown) >= 8
    assert all(told), shown
    used = {name for tag in shown for name in re.findall(r"pictures/([\w-]+\.(?:png|svg))", tag)}
    assert used == {path.name for path in (ROOT / "docs/pictures").iterdir()}


def test_links_of_the_front_page_lead_somewhere(site: Path) -> None:
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "README.md").read_text())
    places = [link.partition("#") for link in links if not link.startswith("http")]
    assert len(places) > 20
    for path, _, anchor in places:
        assert (ROOT / path).is_file(), path
        if anchor:
            assert f'id="{anchor}"' in (site / Path(path).name).with_suffix(".html").read_text(), (path, anchor)


async def test_search_works_from_a_folder_and_asks_no_host(site: Path) -> None:
    async with chromium() as browser:
        page = await browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.goto((site / "first-mail.html").as_uri())
        await page.get_by_role("textbox", name="Search").first.fill("one-click unsubscribe")
        await expect(page.locator(".md-search-result__link").first).to_have_attribute("href", re.compile(r"^file:"))
        assert [url for url in asked if not url.startswith("file:")] == []


def test_the_script_of_others_is_as_they_published_it() -> None:
    assert hashlib.sha256((ROOT / "docs/scripts/iframe-worker.js").read_bytes()).hexdigest() == SHIM
    assert (ROOT / "docs/scripts/iframe-worker.LICENSE.txt").is_file()
