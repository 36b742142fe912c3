"""The pages that the build of the site adds: the API from its own OpenAPI document, the settings, and files that lie
outside `docs`.

The document is made from the routes of this version, without any server. Each subject becomes a page. The search puts
written pages first, and leaves the tables of types out.
"""

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from services.api.http.openapi import document
from services.wiring.api import build_resources
from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from shared.runtime.configuration import list_settings, load
from shared.runtime.settings import Settings

_FOLDER = "reference"
_ABOUT = (
    "All routes of this version, by subject. A running Carillon serves the same document at `/openapi.json`, and "
    "a page to try it at `/docs`. The examples show the form of a request, with made-up values. Any route may answer "
    "401 (the caller is unknown), 403 (a role is missing), 413 (too large), 421 (a host that is not "
    "allowed), 429 (too many requests), 500 (a fault of Carillon) and 503 (a server is away). A refusal is a "
    "[problem](../errors.md) that names the field and the rule."
)
_SUBJECTS = {
    "accounts": "Apps, people and tokens",
    "jobs": "Jobs, templates and uploads",
    "push": "Previews and devices",
    "clock": "Schedules and their dead letters",
    "messages": "Messages and provider accounts",
    "bus.native": "The event bus",
    "bus.routemaster": "Routemaster's routes",
    "console": "Watching and acting on a deployment",
    "http": "Health and documentation",
}
"""Every room below `services/api`, in the order of the reference."""
_LEAST_IN_SEARCH = "---\nsearch:\n  boost: 0.1\n---\n"
_OUTSIDE = {"changelog.md": ("CHANGELOG.md", "docs/"), "python.md": ("client/README.md", "../docs/")}
"""Pages of files outside `docs`, and the beginning of their links into it."""
_EXAMPLES = {
    "JobBody": {"service": "apns", "filters": {"locale": "en,pt"}},
    "ScheduleBody": {
        "key": "report",
        "cron": "0 9 * * 1-5",
        "timezone": "Europe/Paris",
        "callback": {"type": "http", "data": {"url": "https://app.example.com/report", "payload": {"of": "sales"}}},
    },
    "EventSubscriptionBody": {"topics": ["widgets"], "callback": "https://app.example.com/events"},
    "SingleBody": {"credential": "mail", "to": "ana@example.com", "template": "welcome", "parameters": {"user": "Ana"}},
    "BulkActionBody": {"act": "job.stop", "filter": {"template": "welcome"}, "reason": "a wrong link"},
    "CredentialBody": {
        "name": "mail",
        "kind": "smtp",
        "fields": {"host": "smtp.example.com", "user": "shop", "from": "shop@example.com"},
        "secret": {"password": "…"},
        "testRecipient": "ana@example.com",
    },
    "UserBody": {"email": "ana@example.com", "roles": {"*": "viewer"}},
}
"""Bodies for which the needed fields alone make no request."""
_ANYWHERE = {"401", "403", "413", "421", "429", "500", "503"}
_DEEPEST_EXAMPLE = 3
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
    groups: dict[str, list[tuple[str, str, Any]]] = {subject: [] for subject in _SUBJECTS}
    for path, methods in _read_document()["paths"].items():
        for method, operation in methods.items():
            groups[_subjects[_shape(path)]].append((method.upper(), path, operation))
    schemas = _read_document()["components"]["schemas"]
    pages = {f"{_FOLDER}/index.md": _LEAST_IN_SEARCH + _index(groups)}
    for subject, operations in groups.items():
        if operations:
            pages[_name(subject)] = _LEAST_IN_SEARCH + _page(_SUBJECTS[subject], operations, schemas)
    reference = next(each["Reference"] for each in config.nav if "Reference" in each)
    reference.append({"API": list(pages)})
    for name, (source, beginning) in _OUTSIDE.items():
        pages[name] = (Path(config.docs_dir).parent / source).read_text("utf-8").replace(f"]({beginning}", "](")
    pages["settings.md"] = _settings()
    for name, text in pages.items():
        target = Path(_places.name) / name
        target.parent.mkdir(exist_ok=True)
        target.write_text(text)
        files.append(File(name, _places.name, config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Name files of the source that lie beside the documentation, and do not link to them: the site lacks them."""
    if page.file.src_uri.startswith(_FOLDER):
        return markdown
    return _SOURCES.sub(lambda match: f"] (`{match[1]}`)", markdown)


def _read_document() -> dict[str, Any]:
    if not _document:
        servers = Servers(load({}), service="docs")
        resources = build_resources(Rooms(servers))
        handlers = [(handler, type(resource).__module__) for resource in resources for handler in resource.handlers()]
        for handler, module in handlers:
            room = next(room for room in _SUBJECTS if f"{module}.".startswith(f"services.api.{room}."))
            _subjects.update({_shape(path): room for path in handler.paths})
        _document.update(json.loads(msgspec.json.encode(document([handler for handler, _ in handlers]))))
    return _document


_document: dict[str, Any] = {}
_subjects: dict[str, str] = {}


def _shape(path: str) -> str:
    return re.sub(r"{[^}]*}", "{}", path)


def _name(subject: str) -> str:
    return f"{_FOLDER}/{subject.replace('.', '-')}.md"


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
    lines = ["# The API", "", _ABOUT, ""]
    for subject, operations in groups.items():
        if operations:
            name = _name(subject).removeprefix(f"{_FOLDER}/")
            lines += [f"## [{_SUBJECTS[subject]}]({name})", "", "| route | summary |", "| --- | --- |"]
            lines += [f"| `{method} {path}` | {operation['summary']} |" for method, path, operation in operations]
            lines.append("")
    return "\n".join(lines)


def _page(title: str, operations: list[tuple[str, str, Any]], schemas: dict[str, Any]) -> str:
    lines = [f"# {title}", ""]
    used: dict[str, None] = {}
    shown: set[str] = set()
    for method, path, operation in operations:
        lines += [f"## `{method} {path}`", "", operation["summary"], ""]
        lines += _security(operation)
        lines += _parameters(operation)
        body = operation.get("requestBody", {}).get("content", {})
        if body:
            media, schema = " or ".join(f"`{each}`" for each in body), next(iter(body.values())).get("schema", {})
            lines += [f"Body: {media}, {_type(schema)}.", ""]
        answers = {
            status: next(iter(each.get("content", {}).items()), ("", {}))
            for status, each in operation["responses"].items()
        }
        good = {
            status: content.get("schema", {}) for status, (media, content) in answers.items() if "problem" not in media
        }
        lines += [f"Answers {status}: {_type(schema) if schema else 'no body'}." for status, schema in good.items()]
        if refusals := [status for status in answers if status not in good and status not in _ANYWHERE]:
            lines.append(f"Refusals: {', '.join(refusals)}.")
        lines.append("")
        answer = next(iter(good.values()), {})
        lines += _example(
            method,
            path,
            operation,
            {} if _type(answer) in shown and not {"201", "202"} & good.keys() else answer,
            schemas,
        )
        shown.add(_type(answer))
        used |= dict.fromkeys(
            _names([operation.get("requestBody", {}), operation.get("parameters", []), *good.values()])
        )
    lines += _tables(list(used), schemas)
    return "\n".join(lines)


def _example(method: str, path: str, operation: Any, answer: Any, schemas: dict[str, Any]) -> list[str]:
    """A request with the fields that it needs, and its answer: of each type one on a page, and all of things that are
    created."""
    who = '-u "$TOKEN:"' if "basic" in str(operation.get("security")) else '-H "$WHO"'
    needed = [each["name"] for each in operation["parameters"] if each["in"] == "query" and each.get("required")]
    address = f"localhost:8080{path}" + ("?" + "&".join(f"{name}=…" for name in needed) if needed else "")
    request = f'curl -s{"" if method == "GET" else f" -X {method}"} "{address}" {who}'
    body = operation.get("requestBody", {}).get("content", {})
    if (content := body.get("application/json")) and (value := _sample(content.get("schema", {}), schemas)):
        request += f" -d '{json.dumps(value, ensure_ascii=False)}'"
    lines = ["```", request, "```", ""]
    if answer and (value := _sample(answer, schemas)):
        lines += ["```json", json.dumps(value, indent=2, ensure_ascii=False), "```", ""]
    return lines


def _sample(schema: Any, schemas: dict[str, Any], depth: int = 0) -> Any:
    """A made-up value of this type: fields that must be there, or all if none must."""
    if (name := schema.get("$ref", "").rpartition("/")[2]) in _EXAMPLES:
        return _EXAMPLES[name]
    if "$ref" in schema:
        return _sample(schemas[schema["$ref"].rpartition("/")[2]], schemas, depth)
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return _sample(schema[choice][0], schemas, depth)
    for given in ("const", "default"):
        if given in schema:
            return schema[given]
    if found := schema.get("examples") or schema.get("enum"):
        return found[0]
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "array":
        return [_sample(schema.get("items", {}), schemas, depth + 1)] if depth < _DEEPEST_EXAMPLE else []
    if kind == "object":
        fields = schema.get("properties", {})
        needed = schema.get("required") or list(fields)
        return {name: _sample(fields[name], schemas, depth + 1) for name in needed} if depth < _DEEPEST_EXAMPLE else {}
    by_format = {"date-time": "2030-12-24T14:00:00Z", "uuid": "0b8f6c1e-2f7e-4c1b-9a51-6d0d7f5b3c10"}
    return {"string": by_format.get(schema.get("format", ""), "…"), "boolean": False, "null": None}.get(
        kind, 0 if kind else {}
    )


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
        lines += [f"## {name} {{ data-search-exclude }}", ""]
        if schema.get("description"):
            lines += [_prose(schema["description"]), ""]
        if schema.get("enum"):
            lines += ["One of " + ", ".join(f"`{value}`" for value in schema["enum"]) + ".", ""]
        if schema.get("properties"):
            lines += ["| field | type | |", "| --- | --- | --- |"]
            needed, always = set(schema.get("required", ())), "needed" if name.endswith("Body") else "always there"
            for field, kind in schema["properties"].items():
                notes = _cell(kind.get("description", "")) or (always if field in needed else "")
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
