"""The pages that the build of the site adds to the reference: the API, from its own OpenAPI document, and the settings.

The document is made from the routes of this version, without any server. Each group of routes becomes a page.
"""

import json
import re
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from services.api.http.openapi import document
from services.connections import Capabilities
from services.parts import Parts
from shared.runtime.configuration import list_settings, load
from shared.runtime.settings import Settings

_FOLDER = "reference"
_ABOUT = (
    "All routes of this version, by what they are about. A running Carillon serves the same document at "
    "`/openapi.json`, and a page to try it at `/docs`."
)
_ABOUT_SETTINGS = (
    "A settings file (`--config`, or `CARILLON_CONFIG`) is TOML with a table for each section, and needs only what it "
    "changes. `CARILLON_<SECTION>_<FIELD>` in the environment overrides it; with `_FILE` behind its name, the variable "
    "names a file that holds the value. Defaults are shown here. `carillon config` prints what most operators choose, "
    "and `carillon config --all` prints everything."
)
_SOURCES = re.compile(r"\]\(\.\./([^)#]+)(#[^)]*)?\)")
_places = TemporaryDirectory()


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the reference."""
    paths = _read_document()["paths"]
    groups: dict[str, list[tuple[str, str, Any]]] = defaultdict(list)
    for path, methods in paths.items():
        for method, operation in methods.items():
            groups[operation["tags"][0]].append((method.upper(), path, operation))
    described = _read_document()["components"]["schemas"]
    pages = {f"{_FOLDER}/index.md": _index(groups)}
    pages |= {f"{_FOLDER}/{tag}.md": _page(tag, operations, described) for tag, operations in groups.items()}
    first = f"{_FOLDER}/index.md"
    reference = next(each["Reference"] for each in config.nav if "Reference" in each)
    reference.append({"API": [first, *sorted(pages.keys() - {first})]})
    pages["settings.md"] = _settings()
    for name, text in pages.items():
        target = Path(_places.name) / name
        target.parent.mkdir(exist_ok=True)
        target.write_text(text)
        files.append(File(name, _places.name, config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Name files of the source that lie beside the documentation, and do not link to them: the site lacks them."""
    return _SOURCES.sub(lambda match: f"] (`{match[1]}`)", markdown)


def _read_document() -> dict[str, Any]:
    if not _document:
        parts = Parts(Capabilities(load({}), service="docs"), ["api"])
        resources = [resource for part in parts for resource in part.resources()]
        handlers = [handler for resource in resources for handler in resource.handlers()]
        _document.update(json.loads(msgspec.json.encode(document(handlers))))
    return _document


_document: dict[str, Any] = {}


def _settings() -> str:
    """A list for each section; settings that few deployments change follow in a list of their own."""
    listed = list_settings(Settings())
    lines = ["# Settings", "", _ABOUT_SETTINGS, ""]
    for name, section in Settings().sections().items():
        lines += [f"## {name}", "", _prose(str(type(section).__doc__)), ""]
        for rare in (False, True):
            if found := [each for each in listed if each.name.startswith(f"{name}.") and each.rare is rare]:
                lines += ["Few deployments change these:", ""] if rare else []
                lines += [f"- `{each.name} = {each.default}`<br>{_prose(each.sentence)}" for each in found]
                lines.append("")
    return "\n".join(lines)


def _index(groups: dict[str, list[tuple[str, str, Any]]]) -> str:
    lines = [
        "# The API",
        "",
        _ABOUT,
        "",
    ]
    for tag in sorted(groups):
        lines += [f"## [{_title(tag)}]({tag}.md)", "", "| route | summary |", "| --- | --- |"]
        lines += [f"| `{method} {path}` | {operation['summary']} |" for method, path, operation in groups[tag]]
        lines.append("")
    return "\n".join(lines)


def _page(tag: str, operations: list[tuple[str, str, Any]], schemas: dict[str, Any]) -> str:
    lines = [f"# {_title(tag)}", ""]
    used: dict[str, None] = {}
    for method, path, operation in operations:
        lines += [f"## `{method} {path}`", "", operation["summary"], ""]
        lines += _security(operation)
        lines += _parameters(operation)
        body = operation.get("requestBody", {}).get("content", {})
        if body:
            media, schema = " or ".join(f"`{each}`" for each in body), next(iter(body.values())).get("schema", {})
            lines += [f"Body: {media}, {_type(schema)}.", ""]
        lines += ["| answer | body |", "| --- | --- |"]
        for status, answer in operation["responses"].items():
            content = next(iter(answer.get("content", {}).values()), {}).get("schema", {})
            lines.append(f"| {status} | {_type(content) if content else 'none'} |")
        lines.append("")
        used |= dict.fromkeys(_names(operation))
    lines += _tables(list(used), schemas)
    return "\n".join(lines)


def _title(tag: str) -> str:
    return tag.replace("-", " ").replace("_", " ").capitalize()


def _security(operation: Any) -> list[str]:
    roles = sorted({role for way in operation.get("security", []) for roles in way.values() for role in roles})
    return [f"Needs the role {' or '.join(f'`{role}`' for role in roles)}.", ""] if roles else []


def _parameters(operation: Any) -> list[str]:
    parameters = operation.get("parameters", [])
    if not parameters:
        return []
    lines = ["| parameter | in | meaning |", "| --- | --- | --- |"]
    for each in parameters:
        meaning = each.get("description") or each.get("schema", {}).get("description", "")
        lines.append(f"| `{each['name']}` | {each['in']} | {_cell(meaning)} |")
    return [*lines, ""]


def _tables(names: list[str], schemas: dict[str, Any]) -> list[str]:
    """A table of fields for each type, and for those that its fields have."""
    lines, told = [], set()
    while names:
        name = names.pop(0)
        if name in told or name not in schemas:
            continue
        told.add(name)
        schema = schemas[name]
        lines += [f"## {name}", ""]
        if schema.get("description"):
            lines += [_prose(schema["description"]), ""]
        if schema.get("enum"):
            lines += ["One of " + ", ".join(f"`{value}`" for value in schema["enum"]) + ".", ""]
        if schema.get("properties"):
            lines += ["| field | type | |", "| --- | --- | --- |"]
            needed = set(schema.get("required", ()))
            for field, kind in schema["properties"].items():
                notes = _cell(kind.get("description", "")) or ("always there" if field in needed else "")
                lines.append(f"| `{field}` | {_type(kind)} | {notes} |")
            lines.append("")
        names += _names(schema)
    return lines


def _names(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"].rpartition("/")[2]] if "$ref" in value else []
        return own + [name for each in value.values() for name in _names(each)]
    if isinstance(value, list):
        return [name for each in value for name in _names(each)]
    return []


def _type(schema: Any) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return " or ".join(_type(each) for each in schema[choice])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "additionalProperties" in schema and isinstance(schema["additionalProperties"], dict):
        return f"map of {_type(schema['additionalProperties'])}"
    kind = schema.get("type", "anything")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _cell(text: str) -> str:
    return _prose(text).replace("|", "\\|")


def _prose(text: str) -> str:
    """Text of a description as Markdown: what stands between backticks stays as it is."""
    parts = " ".join(text.split()).split("`")
    return "`".join(part if index % 2 else part.replace("<", "&lt;") for index, part in enumerate(parts))
