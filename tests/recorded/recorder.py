"""The record: how it is written, and how it is compared with an earlier one."""

import difflib
import json
import os
import re
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ANSWERS = Path(__file__).parent / "answers"
RECORDS = os.environ.get("CARILLON_RECORD") == "1"
_MOST_LINES = 120

USUAL = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
"""Headers that nearly every answer has: they are told where they differ or are missing."""
_LEFT_OUT = {"content-length", "x-request-id", "date"}

_TOKEN = re.compile(r"\bcarillon_(?:\w+_)?[\w-]{43}(?![\w-])")
_KEY = re.compile(r"\bwhsec_[\w+/=-]{20,}")
_UUID = re.compile(r"(?<![0-9a-f])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_HEX = re.compile(
    r"(?<![0-9A-Za-z])(?:[0-9a-f]{16}|[0-9a-f]{24}|[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64})(?![0-9A-Za-z])"
)
_PART = re.compile(r"(?<=>-)[0-9a-f]{8}(?=\.csv|~|\b)")
_LONG = re.compile(r"(?<![\w./%-])(?=[\w+/-]*[0-9])(?=[\w+/-]*[A-Z])[\w+/-]{30,}={0,2}(?![\w.-])")
_SEALED = re.compile(r"\b1\.[0-9a-f]{8}\.[\w=-]{30,}")
_INODE = re.compile(r"(?<=\")\d{5,}(?=-\d+-<ns)")
_LASTED = re.compile(r"(?<=\"ms\": )\d+|(?<=_ms\": )\d+(?=,\n \"health)|\d+(?= ms\b)")
_PORT = re.compile(r"(?<=127\.0\.0\.1:)\d{4,5}\b")
_ISO = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|\+00:00| UTC)?")
_NUMBER = re.compile(r"(?<![\w.])1[789]\d{8}(?:\d{3}|\d{6}|\d{9})?(?![\w])")
_UNITS = {10: ("s", 1), 13: ("ms", 10**3), 16: ("us", 10**6), 19: ("ns", 10**9)}
_REAL = timedelta(hours=26)


class Placeholders:
    """Replaces in one text all that differs from run to run: the first UUID is `<uuid:1>` wherever it is. Times by the
    product's clock stay, as it is steady; of real ones the unit and how far they are off in hours are told."""

    def __init__(self, names: Mapping[str, str], *, numbered: bool = True, times_alone: bool = False) -> None:
        self._names = sorted(names.items(), key=lambda each: -len(each[0]))
        self._numbered = numbered
        self._times_alone = times_alone
        self._seen: dict[str, dict[str, int]] = defaultdict(dict)
        self._now = datetime.now(UTC)

    def apply(self, text: str) -> str:
        if not self._times_alone:
            text = self._without_chance(text)
        text = _NUMBER.sub(self._number_of_time, _ISO.sub(self._time, text))
        return _INODE.sub("<inode>", _PORT.sub("<port>", text))

    def _without_chance(self, text: str) -> str:
        for value, name in self._names:
            text = text.replace(value, name)
        text = _LASTED.sub("<lasted>", _SEALED.sub("<sealed>", text))
        for kind, pattern in (("token", _TOKEN), ("key", _KEY), ("uuid", _UUID), ("hex", _HEX), ("part", _PART)):
            text = pattern.sub(lambda found, kind=kind: self._number(kind, found[0]), text)  # type: ignore[misc]
        return _LONG.sub(lambda found: self._number("text", found[0]), text)

    def _number(self, kind: str, value: str) -> str:
        if kind == "hex":
            if value.isdigit() and value.startswith("25246"):  # microseconds of the recorder's clock
                return value
            kind = f"hex{len(value)}"
        if not self._numbered:
            return f"<{kind}>"
        seen = self._seen[kind]
        return f"<{kind}:{seen.setdefault(value, len(seen) + 1)}>"

    def _time(self, found: re.Match[str]) -> str:
        try:
            at = datetime.fromisoformat(found[0].replace(" UTC", "+00:00"))
        except ValueError:
            return found[0]
        return self._told(at if at.tzinfo else at.replace(tzinfo=UTC), "time") or found[0]

    def _number_of_time(self, found: re.Match[str]) -> str:
        unit, scale = _UNITS[len(found[0])]
        return self._told(datetime.fromtimestamp(int(found[0]) / scale, UTC), unit) or found[0]

    def _told(self, at: datetime, unit: str) -> str:
        """The placeholder of a real time, rounded to half an hour; nothing for others."""
        apart = at - self._now
        if abs(apart) > _REAL:
            return ""
        hours = round(apart.total_seconds() / 1_800) / 2
        return f"<{unit}:now>" if not hours else f"<{unit}:now{hours:+g}h>"


def pretty(content: bytes | str, media: str = "application/json") -> str:
    """A body as text: JSON on many lines."""
    text = content.decode("utf-8", "backslashreplace") if isinstance(content, bytes) else content
    if "json" not in media:
        return text
    try:
        return show(_merged(json.loads(text)), None if "problem" in media else 1)
    except ValueError:
        return text


def show(value: Any, indent: int | None = 1) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False, default=str)


def _merged(value: Any) -> Any:
    """The jobs of the time zones of a push as one, as their order is random: fields that differ are `<each>`."""
    if isinstance(value, dict):
        return {key: _merged(each) for key, each in value.items()}
    if not isinstance(value, list):
        return value
    merged: list[Any] = []
    for each in map(_merged, value):
        last = merged[-1] if merged else None
        group = isinstance(each, dict) and each.get("localized") and each.get("jobGroupId")
        if group and isinstance(last, dict) and last.get("jobGroupId") == group:
            merged[-1] = {key: old if old == each[key] else "<each>" for key, old in last.items()}
        else:
            merged.append(each)
    return merged


def headers_text(headers: Mapping[str, str]) -> list[str]:
    told = {name: value for name, value in sorted(headers.items()) if name not in _LEFT_OUT}
    lines = [f"{name}: {value}" for name, value in told.items() if USUAL.get(name) != value]
    return lines + [f"(without {name})" for name in USUAL if name not in headers]


class Recording:
    """Files by their names below `answers/`, each a list of blocks."""

    def __init__(self) -> None:
        self.files: dict[str, list[str]] = defaultdict(list)

    def add(self, file: str, block: str) -> None:
        self.files[file].append(block)

    def texts(self, names: Mapping[str, str]) -> dict[str, str]:
        """Each file's text, with placeholders."""
        return {
            file: Placeholders(names).apply("\n\n".join(blocks).rstrip() + "\n") for file, blocks in self.files.items()
        }


def check(found: Mapping[str, str], *owned: str) -> None:
    """Compare these files with those in the folders `owned`, or write them where `CARILLON_RECORD=1`.

    Raises:
        AssertionError: they differ; it shows how.
    """
    there = {
        str(path.relative_to(ANSWERS)): path for folder in owned for path in sorted((ANSWERS / folder).rglob("*.txt"))
    }
    assert all(file.startswith(tuple(f"{folder}/" for folder in owned)) for file in found), (sorted(found), owned)
    if RECORDS:
        for file in there.keys() - found.keys():
            there[file].unlink()
        for file, text in found.items():
            path = ANSWERS / file
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_text() != text:
                path.write_text(text)
        return
    before = {file: path.read_text() for file, path in there.items()}
    different = [file for file in sorted(before.keys() | found.keys()) if before.get(file) != found.get(file)]
    assert not different, _complaint(different, before, found)


def _complaint(different: list[str], before: Mapping[str, str], found: Mapping[str, str]) -> str:
    lines = [f"{len(different)} recorded files differ; if they should, run `make record` and review its difference:"]
    lines += [f"  tests/recorded/answers/{file}" for file in different]
    for file in different:
        old, new = before.get(file, "").splitlines(), found.get(file, "").splitlines()
        lines += ["", *difflib.unified_diff(old, new, f"recorded/{file}", f"now/{file}", lineterm="", n=6)]
    return "\n".join(lines[:_MOST_LINES] + ["…"] * (len(lines) > _MOST_LINES))
