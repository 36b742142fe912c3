"""Rendering: from the templates of a job and its recipients' columns to a provider's bodies.

A tag is `{{name}}`, a name of letters, digits and `_` in any script (XID of UTS #31). It matches columns without
regard to case, surrounding blanks and invisible characters. Any other text that begins with `{{` is refused, so that
no recipient ever reads `{{first name}}`: logic (`{{#if}}`), paths (`{{a.b}}`) and raw values (`{{{x}}}`) of other
systems are no tags here. `}}` without an earlier `{{` is text, as in CSS.

A body is taken apart once, and its recipients come in columns: one step handles (escapes) all values of a column,
and a text is joined from its parts without inspecting them. Row by row the same takes four times as long.

Values are data. Texts under `html` at the top of a body have them escaped, in those under `subject` every tab and
line end becomes a blank, and JSON is made from the body after they are in place. A recipient's column wins over the
job's context, which wins over the template's defaults; a column that is empty for a recipient is empty.
"""

import html
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from itertools import chain, compress, repeat
from typing import Any, assert_never

import numpy as np
from msgspec import Struct

from shared.audience.rules.columns import column_name
from shared.core.errors import Invalid
from shared.jobs.rules.templates import (
    TAG_RULE,
    Template,
    dumps,
    find_locale,
    is_tag_name,
    list_tags,
    places_by_locale,
)

UNSUBSCRIBE_URL = "unsubscribe_url"
"""The tag that no column fills: a recipient's own link (`shared.messages.rules.suppressions`)."""
_SHOWN_CHARACTERS = 40


class TaggedText(Struct, frozen=True):
    """A text around its tags: `literals` has one more than `tags`, and they alternate."""

    literals: tuple[str, ...]
    tags: tuple[str, ...]


def split_at_tags(text: str, path: str) -> TaggedText:
    literals, tags, end = [], [], 0
    while (start := text.find("{{", end)) >= 0:
        literals.append(text[end:start])
        close = text.find("}}", start)
        if close < 0:
            raise _refuse(path, text[start:], "it is never closed with }}")
        end = close + len("}}")
        tags.append(_tag_name(text[start:end], path))
    return TaggedText((*literals, text[end:]), tuple(tags))


def find_unfilled(tags: Iterable[str], *filled: Collection[str]) -> list[str]:
    known = {UNSUBSCRIBE_URL}.union(*filled)
    return sorted({*tags} - known)


def check_filled_tags(tags: Iterable[str], *filled: Collection[str]) -> None:
    """Raise `Invalid` for an unfilled tag, because a message with a gap must not be sent."""
    if unfilled := find_unfilled(tags, *filled):
        named = list_tags(unfilled, {*chain.from_iterable(filled)})
        raise Invalid(f"invalid template: no column, context or default for {named}", field="template")


def find_tag(value: Any, name: str, path: str = "body") -> str:
    """The path of the first text with this tag; `""` if there is none."""
    match value:
        case str():
            return path if name in split_at_tags(value, path).tags else ""
        case dict():
            below = ((f"{path}.{key}", each) for key, each in value.items())
        case list():
            below = ((f"{path}[{place}]", each) for place, each in enumerate(value))
        case _:
            return ""
    return next((found for place, each in below if (found := find_tag(each, name, place))), "")


def values_by_tag(values: Mapping[str, Any], field: str) -> dict[str, str | None]:
    """The values of context or defaults for tags, as text: a number or a boolean as in JSON, null as the empty text;
    `None` for an object or a list, which fills no tag."""
    found: dict[str, str | None] = {}
    for key, value in values.items():
        name = column_name(key)
        if name in found:
            raise Invalid(f"invalid {field}: several keys fill the tag {{{{{name}}}}}", field=field)
        found[name] = _text_of(value)
    return found


def texts_only(values: Mapping[str, str | None]) -> dict[str, str]:
    return {name: text for name, text in values.items() if text is not None}


def _text_of(value: Any) -> str | None:
    match value:
        case str():
            return value
        case None:
            return ""
        case dict() | list():
            return None
        case _:
            return dumps(value)


def _tag_name(tag: str, path: str) -> str:
    name = column_name(tag[2:-2])
    if not is_tag_name(name):
        raise _refuse(path, tag, TAG_RULE)
    return name


def _refuse(path: str, tag: str, rule: str) -> Invalid:
    shown = tag if len(tag) <= _SHOWN_CHARACTERS else f"{tag[:_SHOWN_CHARACTERS]}…"
    return Invalid(f"invalid template: {shown!r} in {path}: {rule}", field=path, value=shown)


MAX_BODY_CHARACTERS = 1024 * 1024
"""The limit of the texts of one message. A short template with many tags may expand beyond any memory."""
LOCALE = "locale"
"""The column that picks a recipient's template."""
Body = dict[str, Any]
"""The body for one recipient. All recipients share the parts without a tag: do not change them."""
TextColumn = Sequence[str]
_LINE_ENDS = re.compile(r"\r\n|[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_NUL = "\0"


class TextKind(Enum):
    """The kind of a text, and so of the values in it."""

    PLAIN = auto()
    HTML = auto()
    LINE = auto()


class _Text(Struct, frozen=True):
    parts: TaggedText
    kind: TextKind


class _Object(Struct, frozen=True):
    keys: tuple[str, ...]
    values: "tuple[_Part, ...]"


class _List(Struct, frozen=True):
    values: "tuple[_Part, ...]"


class _Fixed(Struct, frozen=True):
    value: Any


_Part = _Text | _Object | _List | _Fixed


class _Values:
    """The values of some recipients, cleaned for each kind of text on first use."""

    def __init__(self, columns: Mapping[str, TextColumn], fixed: Mapping[str, str], count: int) -> None:
        self._columns = columns
        self._fixed = fixed
        self.count = count
        self._ready: dict[tuple[str, TextKind], TextColumn] = {}

    def column(self, tag: str, kind: TextKind) -> TextColumn:
        ready = self._ready.get((tag, kind))
        if ready is None:
            ready = self._ready[tag, kind] = self._make_ready(tag, kind)
        return ready

    def _make_ready(self, tag: str, kind: TextKind) -> TextColumn:
        column = self._columns.get(tag)
        if column is None:
            return [_CLEAN[kind](self._fixed.get(tag, ""))] * self.count
        return _clean_all(column, kind)


class CompiledBody:
    def __init__(self, body: Mapping[str, Any], *, field: str = "body") -> None:
        self._parts = {
            _plain_key(key, field): _compile(value, f"{field}.{key}", _KINDS.get(key, TextKind.PLAIN))
            for key, value in body.items()
        }
        self._texts = [text for part in self._parts.values() for text in _texts_of(part)]
        self._fixed_characters = sum(len(literal) for text in self._texts for literal in text.parts.literals)
        self._uses = Counter((tag, text.kind) for text in self._texts for tag in text.parts.tags)
        self.tags = frozenset(tag for tag, _ in self._uses)

    def render(
        self,
        columns: Mapping[str, TextColumn],
        count: int,
        *,
        fixed: Mapping[str, str] | None = None,
        most: int = MAX_BODY_CHARACTERS,
    ) -> list[Body | None]:
        """The bodies of `count` recipients, with their values in columns by tag. `fixed` has values for all recipients
        if there is no column; unfilled tags are empty. `None` is a body of more than `most` characters."""
        values = _Values(columns, fixed or {}, count)
        if self._bound(values) <= most:
            return [*self._render(values)]
        fitting = (self._lengths(values) <= most).tolist()
        kept = {tag: list(compress(column, fitting)) for tag, column in columns.items() if tag in self.tags}
        rendered = self._render(_Values(kept, fixed or {}, sum(fitting)))
        return [next(rendered) if fits else None for fits in fitting]

    def measure(self, columns: Mapping[str, TextColumn], count: int, *, fixed: Mapping[str, str]) -> list[int]:
        """The characters of each recipient's texts; parts that are the same for all are not counted."""
        lengths: list[int] = self._lengths(_Values(columns, fixed, count)).tolist()
        return lengths

    def _render(self, values: _Values) -> Iterator[Body]:
        return _rows_as_objects(tuple(self._parts), tuple(self._parts.values()), values)

    def _bound(self, values: _Values) -> int:
        return self._fixed_characters + sum(
            uses * max(map(len, values.column(tag, kind)), default=0) for (tag, kind), uses in self._uses.items()
        )

    def _lengths(self, values: _Values) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        lengths = np.full(values.count, self._fixed_characters, np.int64)
        for (tag, kind), uses in self._uses.items():
            lengths += uses * np.fromiter(map(len, values.column(tag, kind)), np.int64, values.count)
        return lengths


class MessageTexts:
    """The templates of one job in all locales, for all of its batches. The one in the job's `locale` serves recipients
    whose own locale has no template."""

    def __init__(self, templates: Sequence[Template], context: Mapping[str, Any], *, locale: str) -> None:
        places = next(iter(places_by_locale(templates).values()), {})
        chosen = {known: templates[place] for known, place in places.items()}
        self._bodies = {known: _compile_template(template) for known, template in chosen.items()}
        default = find_locale(locale, self._bodies)
        if default is None:
            there = ", ".join(sorted(template.locale for template in chosen.values())) or "no other"
            raise Invalid(f"invalid template: there is none in the locale {locale!r}, but in {there}", field="template")
        self._default = default
        self.default_template = chosen[default]
        said = values_by_tag(context, "context")
        self._fixed = {
            known: texts_only(values_by_tag(template.defaults, "template") | said) for known, template in chosen.items()
        }
        self.tags = frozenset(tag for body in self._bodies.values() for tag in body.tags)

    def check_filled(self, columns: Iterable[str]) -> None:
        known = {*columns}
        for locale, body in self._bodies.items():
            check_filled_tags(body.tags, known, self._fixed[locale])

    def unfilled_tags(self, columns: Iterable[str]) -> tuple[str, ...]:
        known = {*columns}
        unfilled = (find_unfilled(body.tags, known, self._fixed[locale]) for locale, body in self._bodies.items())
        return tuple(sorted({*chain.from_iterable(unfilled)}))

    def used_columns(self, columns: Iterable[str]) -> tuple[str, ...]:
        used = (self.tags | ({LOCALE} if len(self._bodies) > 1 else set())) - {UNSUBSCRIBE_URL}
        return tuple(column for column in columns if column in used)

    def locales_of(self, columns: Mapping[str, TextColumn], count: int) -> list[str]:
        found = [self._default] * count
        for locale, rows, _ in self._split_by_locale(columns, count):
            for row in rows:
                found[row] = locale
        return found

    def render(self, columns: Mapping[str, TextColumn], count: int) -> list[Body | None]:
        rendered: list[Body | None] = [None] * count
        for locale, rows, theirs in self._split_by_locale(columns, count):
            bodies = self._bodies[locale].render(theirs, len(rows), fixed=self._fixed[locale])
            for row, body in zip(rows, bodies, strict=True):
                rendered[row] = body
        return rendered

    def measure(self, columns: Mapping[str, TextColumn], count: int) -> list[int]:
        lengths = [0] * count
        for locale, rows, theirs in self._split_by_locale(columns, count):
            found = self._bodies[locale].measure(theirs, len(rows), fixed=self._fixed[locale])
            for row, length in zip(rows, found, strict=True):
                lengths[row] = length
        return lengths

    def _split_by_locale(
        self, columns: Mapping[str, TextColumn], count: int
    ) -> Iterator[tuple[str, Sequence[int], Mapping[str, TextColumn]]]:
        locales = columns.get(LOCALE)
        if locales is None or len(self._bodies) == 1:
            yield self._default, range(count), columns
            return
        picked = {written: find_locale(written, self._bodies) or self._default for written in {*locales}}
        if len({*picked.values()}) == 1:
            yield picked[locales[0]], range(count), columns
            return
        for locale in {*picked.values()}:
            rows = [row for row, written in enumerate(locales) if picked[written] == locale]
            yield (
                locale,
                rows,
                {tag: [column[row] for row in rows] for tag, column in columns.items() if tag in self.tags},
            )


def decode_column(column: Sequence[bytes]) -> list[str]:
    joined = b"\0".join(column)
    texts = joined.decode().split(_NUL) if column else []
    return texts if len(texts) == len(column) else [text.decode() for text in column]


def _compile_template(template: Template) -> CompiledBody:
    try:
        return CompiledBody(template.body)
    except Invalid as error:
        reason = error.reason.removeprefix("invalid template: ")
        raise Invalid(
            f"invalid template: {template.name!r} in {template.locale!r}: {reason}", field=error.field
        ) from error


def _compile(value: Any, path: str, kind: TextKind) -> _Part:
    match value:
        case str() if "{{" in value:
            parts = split_at_tags(value, path)
            clean = _CLEAN[TextKind.LINE] if kind is TextKind.LINE else str
            return _Text(TaggedText(tuple(map(clean, parts.literals)), parts.tags), kind)
        case str() if kind is TextKind.LINE:
            return _Fixed(_CLEAN[kind](value))
        case dict():
            parts_of = {_plain_key(key, path): _compile(inner, f"{path}.{key}", kind) for key, inner in value.items()}
            return _unless_fixed(value, _Object(tuple(parts_of), tuple(parts_of.values())))
        case list():
            values = tuple(_compile(inner, f"{path}[{index}]", kind) for index, inner in enumerate(value))
            return _unless_fixed(value, _List(values))
        case _:
            return _Fixed(value)


def _unless_fixed(value: Any, part: _Object | _List) -> _Part:
    return _Fixed(value) if all(isinstance(inner, _Fixed) for inner in part.values) else part


def _plain_key(key: str, path: str) -> str:
    if split_at_tags(key, path).tags:
        raise Invalid(f"invalid template: {path} has a tag in the key {key!r}; tags may only be in values", field=path)
    return key


def _texts_of(part: _Part) -> Iterator[_Text]:
    match part:
        case _Text():
            yield part
        case _Object() | _List():
            yield from chain.from_iterable(map(_texts_of, part.values))
        case _Fixed():
            pass
        case _:
            assert_never(part)


def _column_of(part: _Part, values: _Values) -> Iterable[Any]:
    match part:
        case _Fixed():
            return repeat(part.value, values.count)
        case _Text():
            return _joined_texts(part, values)
        case _Object():
            return _rows_as_objects(part.keys, part.values, values)
        case _List():
            return map(list, zip(*(_column_of(inner, values) for inner in part.values), strict=True))
        case _:
            assert_never(part)


def _joined_texts(text: _Text, values: _Values) -> Iterable[str]:
    first, *literals = text.parts.literals
    pieces: list[Iterable[str]] = [repeat(first, values.count)] if first else []
    for tag, literal in zip(text.parts.tags, literals, strict=True):
        pieces.append(values.column(tag, text.kind))
        pieces += [repeat(literal, values.count)] if literal else []
    return map("".join, zip(*pieces, strict=True))


def _rows_as_objects(keys: tuple[str, ...], parts: tuple[_Part, ...], values: _Values) -> Iterator[Body]:
    if not parts:
        return ({} for _ in range(values.count))
    rows = zip(*(_column_of(part, values) for part in parts), strict=True)
    return (dict(zip(keys, row, strict=True)) for row in rows)


def _clean_all(column: TextColumn, kind: TextKind) -> TextColumn:
    """Clean a whole column at once, joined by a character that hardly any value contains."""
    if kind is TextKind.PLAIN:
        return column
    clean = _CLEAN[kind]
    cleaned = clean(_NUL.join(column)).split(_NUL) if column else []
    return cleaned if len(cleaned) == len(column) else [clean(value) for value in column]


_KINDS = {"html": TextKind.HTML, "subject": TextKind.LINE}
_CLEAN: Mapping[TextKind, Callable[[str], str]] = {
    TextKind.PLAIN: str,
    TextKind.HTML: partial(html.escape, quote=True),
    TextKind.LINE: partial(_LINE_ENDS.sub, " "),
}
