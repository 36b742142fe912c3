"""Rendering: from a job's templates and a batch's devices to records.

A tag has one value for the whole job, so a body is filled once per template and locale, never per device. The rest,
per device, is one text with its token, message id and user id. Values are data: the JSON is made after they are in
place, so quotes, line breaks and even `{{` inside a value are kept.

Devices come in columns, and each step handles a column. An exceptional value (a text that needs escaping, a seq_id
that several devices share) is corrected for its device alone.
"""

from binascii import hexlify
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import shake_128
from itertools import chain, compress
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shared.audience.rules.devices import Devices, Keys
from shared.core.instants import ns
from shared.jobs.rules.batches import Receipt
from shared.jobs.rules.jobs import Job
from shared.jobs.rules.templates import (
    Template,
    Unrenderable,
    dumps,
    filled_body,
    filled_bytes,
    find_locale,
    places_by_locale,
)
from shared.push.rules import choices as fanout
from shared.push.rules import records
from shared.push.rules.choices import fake_tokens
from shared.push.rules.records import Frame, Push, RecordRules, is_dry_run

_LAST_BYTES = 6


class MessageIds(Struct, frozen=True):
    """Message ids in two columns: the last group of each, of 12 characters, and the text before it."""

    firsts: Sequence[bytes]
    lasts: Sequence[bytes]


def message_ids(key: int, devices: Devices) -> MessageIds:
    """A UUID (version 8) for each device: always the same, and unique within the job, for every `seq_id` of 64 bits.

    The last group is the low 48 bits of `seq_id`; its high 16 are folded into the second group; the rest is the job's.
    `seq_id` has no unique index, and a receiver may drop a repeated id. So the id of a device that shares its `seq_id`
    also depends on its token and user, and not on its place, because these rows come in any order.
    """
    keys = devices.keys
    firsts = [_first_groups(key, 0)] * len(keys)
    for place in np.flatnonzero(keys >> 48).tolist():
        firsts[place] = _first_groups(key, int(keys[place]) >> 48)
    for place in np.flatnonzero(_are_shared(keys)).tolist():
        own = int.from_bytes(shake_128(devices.tokens[place] + b"\0" + devices.users[place]).digest(8))
        firsts[place] = _first_groups(key ^ own, int(keys[place]) >> 48)
    low = keys.astype(">i8").view(np.uint8).reshape(-1, 8)[:, -_LAST_BYTES:]
    return MessageIds(firsts, hexlify(low.tobytes(), "-", _LAST_BYTES).split(b"-"))


def escape_texts(texts: Sequence[bytes]) -> Sequence[bytes]:
    """Each text in the form for a JSON string, without quotes.

    One look at all texts together finds those with characters to escape, which are nearly always none.
    """
    joined = np.frombuffer(b"".join(texts), np.uint8)
    found = np.flatnonzero((joined < ord(" ")) | (joined == ord('"')) | (joined == ord("\\")))
    if not found.size:
        return texts
    ends = np.cumsum([len(text) for text in texts])
    escaped = list(texts)
    for place in np.unique(np.searchsorted(ends, found, side="right")).tolist():
        escaped[place] = dumps(texts[place].decode())[1:-1].encode()
    return escaped


def _are_shared(keys: Keys) -> NDArray[np.bool_]:
    """A flag for each device whose key another device has. In ascending keys the neighbours show it."""
    if not np.all(keys[1:] >= keys[:-1]):
        _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
        repeated: NDArray[np.bool_] = counts[inverse] > 1
        return repeated
    same = keys[1:] == keys[:-1]
    shared = np.zeros(len(keys), np.bool_)
    shared[1:] |= same
    shared[:-1] |= same
    return shared


def _first_groups(key: int, high: int) -> bytes:
    second = (key >> 16 ^ high) & 0xFFFF
    return b"%08x-%04x-8%03x-%04x-" % (key >> 32, second, key >> 4 & 0xFFF, 0x8000 | key & 0x3FFF)


DEFAULT_LOCALE = "en"
DEFAULT_RULES = RecordRules()
NO_TOKEN = "no-token"
NO_TEMPLATE = "no-template"
TOO_LARGE = "too-large"


class Rendered(Struct, frozen=True):
    records: list[bytes]
    receipt: Receipt

    def count_bytes(self) -> int:
        return sum(map(len, self.records))


# Filled bodies that a renderer keeps: those of any usual job, but not a thousand of a megabyte each.
_KEPT_BYTES = 32_000_000
_NONE = -1
_Choices = NDArray[np.int64]
"""The place of each device's template among the job's, `_NONE` if it has none."""


class Renderer:
    """Renders the devices of one job. Keep it for all of its batches: bodies are filled on first use."""

    def __init__(self, job: Job, rules: RecordRules = DEFAULT_RULES) -> None:
        self._job = job
        self._rules = rules
        self._templates = job.plan.templates
        by_name = places_by_locale(self._templates)
        locales = dict.fromkeys([DEFAULT_LOCALE, *chain.from_iterable(by_name.values())])
        self._locales = {locale: place for place, locale in enumerate(locales)}
        self._by_name_and_locale = _table(job.template_names, self._locales, by_name)
        self._bodies: dict[int, dict[str, Any]] = {}
        self._body_bytes = 0
        self._refused = {_NONE: NO_TEMPLATE}
        self._name_key = fanout.choice_key(job.key, "template")
        self._id_key = fanout.choice_key(job.key, "message id")
        self._token_key = fanout.choice_key(job.key, "fake token")

    def render(self, devices: Devices, *, now: datetime) -> Rendered:
        """The records of these devices. The same devices in the same second give the same bytes.

        `now` must be aware; fractions of a second do not count.
        """
        reachable = devices.pick([token != b"" for token in devices.tokens]) if b"" in devices.tokens else devices
        choices = self._choose(reachable)
        sent, failed = _count(choices), Counter[str]()
        frames, refused = self._frames(sent, ns(now))
        for choice, reason in refused.items():
            failed[reason] += sent.pop(choice)
        if refused:
            kept = np.isin(choices, list(frames))
            reachable, choices = reachable.pick(kept), choices[kept]
        written = self._write(reachable, choices, frames)
        if max(map(len, written), default=0) > self._rules.max_record_bytes:
            fitting = [len(record) <= self._rules.max_record_bytes for record in written]
            failed[TOO_LARGE] += fitting.count(False)
            written = list(compress(written, fitting))
            sent = _count(choices[fitting])
        return Rendered(written, self._receipt(sent, failed, len(devices)))

    def _choose(self, devices: Devices) -> _Choices:
        names = fanout.picks(len(self._job.template_names), self._name_key, devices)
        places = {
            text: self._locales[find_locale(text.decode(), self._locales) or DEFAULT_LOCALE]
            for text in set(devices.locales)
        }
        locales = np.fromiter(map(places.__getitem__, devices.locales), np.int64, len(devices))
        return self._by_name_and_locale[names, locales]

    def _frames(self, choices: Iterable[int], now: int) -> tuple[dict[int, Frame], dict[int, str]]:
        frames, refused = {}, {}
        for choice in choices:
            try:
                frames[choice] = self._frame(choice, now)
            except Unrenderable as error:
                refused[choice] = error.reason
        return frames, refused

    def _frame(self, choice: int, now: int) -> Frame:
        body = self._body(choice)
        frame = records.frame(Push(self._job, self._templates[choice].name, body, now, self._rules))
        # Refused here, before a batch of them fills the memory.
        if sum(map(len, frame)) > self._rules.max_record_bytes:
            raise Unrenderable(TOO_LARGE)
        return frame

    def _body(self, choice: int) -> dict[str, Any]:
        if choice in self._refused:
            raise Unrenderable(self._refused[choice])
        if choice not in self._bodies:
            try:
                self._keep(choice, self._templates[choice])
            except Unrenderable as error:
                self._refused[choice] = error.reason
                raise
        return self._bodies[choice]

    def _keep(self, choice: int, template: Template) -> None:
        size = filled_bytes(template, self._job.context)
        if size > self._rules.max_record_bytes:
            raise Unrenderable(TOO_LARGE)
        if self._body_bytes + size > _KEPT_BYTES:
            self._bodies.clear()
            self._body_bytes = 0
        self._bodies[choice] = filled_body(template, self._job.context)
        self._body_bytes += size

    def _write(self, devices: Devices, choices: _Choices, frames: Mapping[int, Frame]) -> list[bytes]:
        if not len(devices):
            return []
        heads, befores_of_id, befores_of_user, tails = _spread(frames, choices)
        service, dry_run = self._job.service, is_dry_run(self._job)
        tokens = fake_tokens(service, self._token_key, devices.keys) if dry_run else escape_texts(devices.tokens)
        ids, users = message_ids(self._id_key, devices), escape_texts(devices.users)
        columns = zip(heads, tokens, befores_of_id, ids.firsts, ids.lasts, befores_of_user, users, tails, strict=True)
        return list(map(b"".join, columns))

    def _receipt(self, sent: Mapping[int, int], failed: Counter[str], recipients: int) -> Receipt:
        locales: Counter[str] = Counter()
        for choice, count in sent.items():
            locales[self._templates[choice].locale] += count
        skipped = recipients - locales.total() - failed.total()
        return Receipt(
            sent=locales.total(),
            failed=failed.total(),
            skipped=skipped,
            reasons=dict(failed) | ({NO_TOKEN: skipped} if skipped else {}),
            locales=dict(locales),
        )


def _count(choices: _Choices) -> dict[int, int]:
    found, counts = np.unique(choices, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def _table(names: Sequence[str], locales: Iterable[str], by_name: Mapping[str, Mapping[str, int]]) -> NDArray[np.int64]:
    """The choice for each name, and each locale of any template: its own template, or that of the default."""
    owns = [by_name.get(name, {}) for name in names]
    return np.array(
        [[own.get(find_locale(locale, own) or DEFAULT_LOCALE, _NONE) for locale in locales] for own in owns], np.int64
    )


def _spread(frames: Mapping[int, Frame], choices: _Choices) -> list[Sequence[bytes]]:
    if len(frames) == 1:
        [frame] = frames.values()
        return [[part] * len(choices) for part in frame]
    ordered = sorted(frames)
    places = np.searchsorted(ordered, choices)
    return [np.array([frames[choice][part] for choice in ordered], object)[places].tolist() for part in range(4)]
