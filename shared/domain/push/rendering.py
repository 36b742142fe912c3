"""Rendering: from a job's templates and a batch's rows to the records that go out.

A tag has one value for the whole job, so a body is filled in once per template and locale, never per device. What is
left per device is one string with its token, message id and user id in it. Values are put in as data: the JSON is made
after they are in place, so quotes, line breaks and even `{{` inside a value come out as they went in.

Each row ends in one of three ways, and the receipt accounts for all: a record (`sent`), no token to send to
(`skipped`), or a reason why there is no record (`failed`). No row keeps the others from being sent.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from itertools import compress
from typing import Any, cast

import msgspec
from msgspec import Struct

from shared.domain.jobs.batches import Receipt
from shared.domain.jobs.filling import Unrenderable, filled_body, filled_bytes
from shared.domain.jobs.jobs import Job
from shared.domain.jobs.templates import Template, dumps
from shared.domain.push import fanout, records
from shared.domain.push.records import (
    Frame,
    Push,
    RecordRules,
    fake_tokens,
    is_dry_run,
    message_ids,
    message_ids_of_shared,
    nanoseconds,
)

DEFAULT_LOCALE = "en"
DEFAULT_RULES = RecordRules()

NO_TOKEN = "no-token"
NO_TEMPLATE = "no-template"
TOO_LARGE = "too-large"


Recipient = tuple[int, str | None, str | None, str | None, str | None]
"""A device, as a row: seq_id, user_id, token, locale, tz. A driver's record that unpacks so does."""


class Rendered(Struct, frozen=True):
    """The records of a batch, in the order of its rows, and what became of every row."""

    records: list[bytes]
    receipt: Receipt


# What stands around a body: keys, ids, the token and the user id.
_ENVELOPE_BYTES = 600
# A batch is rendered as a whole, and several are in flight: large records make small batches.
_BATCH_BYTES = 8_000_000
# Filled bodies that a renderer keeps: those of any usual job, but not a thousand that have a megabyte each.
_KEPT_BYTES = 32_000_000


_Choice = tuple[str, str | None]
"""What decides the text of a record: the template's name, and the locale as the row has it."""


class Renderer:
    """Renders the rows of one job; worth keeping for all of its batches, as bodies are filled in on first use."""

    def __init__(self, job: Job, rules: RecordRules = DEFAULT_RULES) -> None:
        self._job = job
        self._rules = rules
        self._templates = {(template.name, template.locale): template for template in job.plan.templates}
        self._bodies: dict[tuple[str, str], dict[str, Any]] = {}
        self._body_bytes = 0
        self._refused: dict[tuple[str, str], str] = {}
        self._name_key = fanout.choice_key(job.key, "template")
        self._id_key = fanout.choice_key(job.key, "message id")
        self._token_key = fanout.choice_key(job.key, "fake token")

    def render(self, rows: Sequence[Recipient], *, now: datetime) -> Rendered:
        """The records of these rows. The same rows in the same second give the same bytes.

        `now` must be aware; fractions of a second do not count.
        """
        reachable = [row for row in rows if row[2]]
        choices = self._choose(reachable)
        frames, refused = self._frames(set(choices), nanoseconds(now))
        failed = Counter(refused[choice] for choice in choices if choice in refused) if refused else Counter[str]()
        if refused:
            reachable = [row for row, choice in zip(reachable, choices, strict=True) if choice in frames]
            choices = [choice for choice in choices if choice in frames]
        written = self._write(reachable, [frames[choice] for choice in choices])
        if max(map(len, written), default=0) > self._rules.max_record_bytes:
            fitting = [len(record) <= self._rules.max_record_bytes for record in written]
            failed[TOO_LARGE] += fitting.count(False)
            written, choices = list(compress(written, fitting)), list(compress(choices, fitting))
        return Rendered(written, self._receipt(Counter(choices), failed, len(rows)))

    def _choose(self, rows: Sequence[Recipient]) -> list[_Choice]:
        names = fanout.picks(self._job.template_names, self._name_key, [row[0] for row in rows])
        return list(zip(names, [row[3] for row in rows], strict=True))

    def _frames(self, choices: Collection[_Choice], now: int) -> tuple[dict[_Choice, Frame], dict[_Choice, str]]:
        frames, refused = {}, {}
        for choice in choices:
            try:
                frames[choice] = self._frame(self._template(choice), now)
            except Unrenderable as error:
                refused[choice] = error.reason
        return frames, refused

    def _frame(self, template: Template, now: int) -> Frame:
        frame = records.frame(Push(self._job, template.name, self._body(template), now, self._rules))
        # Refused here, before a batch of them fills the memory. A character is a byte or more.
        if sum(map(len, frame)) > self._rules.max_record_bytes:
            raise Unrenderable(TOO_LARGE)
        return frame

    def _body(self, template: Template) -> dict[str, Any]:
        key = template.name, template.locale
        if key in self._refused:
            raise Unrenderable(self._refused[key])
        if key not in self._bodies:
            try:
                self._keep(key, template)
            except Unrenderable as error:
                self._refused[key] = error.reason
                raise
        return self._bodies[key]

    def _keep(self, key: tuple[str, str], template: Template) -> None:
        size = filled_bytes(template, self._job.context)
        if size > self._rules.max_record_bytes:
            raise Unrenderable(TOO_LARGE)
        if self._body_bytes + size > _KEPT_BYTES:
            self._bodies.clear()
            self._body_bytes = 0
        self._bodies[key] = filled_body(template, self._job.context)
        self._body_bytes += size

    def _template(self, choice: _Choice) -> Template:
        name, locale = choice
        template = self._templates.get((name, (locale or "").lower())) or self._templates.get((name, DEFAULT_LOCALE))
        if template is None:
            raise Unrenderable(NO_TEMPLATE)
        return template

    def _write(self, rows: Sequence[Recipient], frames: Sequence[Frame]) -> list[bytes]:
        if not rows:
            return []
        seq_ids, users, real_tokens, *_ = zip(*rows, strict=True)
        dry_run = is_dry_run(self._job)
        tokens = fake_tokens(self._job.service, self._token_key, seq_ids) if dry_run else escape_texts(real_tokens)
        columns = zip(frames, tokens, self._message_ids(seq_ids, real_tokens, users), escape_texts(users), strict=True)
        return [
            f"{head}{token}{before_message_id}{message_id}{before_user_id}{user}{tail}".encode()
            for (head, before_message_id, before_user_id, tail), token, message_id, user in columns
        ]

    def _message_ids(self, seq_ids: Sequence[int], tokens: Sequence[str], users: Sequence[str | None]) -> list[str]:
        # No index of ours makes seq_id unique, and a receiver may drop what repeats an id.
        if len(set(seq_ids)) == len(seq_ids):
            return message_ids(self._id_key, seq_ids)
        devices = [f"{token}\0{user}" for token, user in zip(tokens, users, strict=True)]
        return message_ids_of_shared(self._id_key, seq_ids, devices)

    def _receipt(self, sent: Counter[_Choice], failed: Counter[str], recipients: int) -> Receipt:
        locales: Counter[str] = Counter()
        for choice, count in sent.items():
            locales[self._template(choice).locale] += count
        skipped = recipients - sent.total() - failed.total()
        return Receipt(
            sent=sent.total(),
            failed=failed.total(),
            skipped=skipped,
            reasons=dict(failed) | ({NO_TOKEN: skipped} if skipped else {}),
            locales=dict(locales),
        )


def fitting_records(job: Job) -> int:
    """How many of the job's records a batch may hold, which is a bound in bytes."""
    return max(1, _BATCH_BYTES // largest_record_bytes(job))


def largest_record_bytes(job: Job) -> int:
    """About the size of the largest record that the job's templates make, its constant parts and a device's own
    included."""
    bodies = [_body_bytes(template, job.context) for template in job.plan.templates]
    return max(bodies, default=0) + len(dumps(job.metadata).encode()) + _ENVELOPE_BYTES


def _body_bytes(template: Template, context: Mapping[str, Any]) -> int:
    try:
        return filled_bytes(template, context)
    except Unrenderable:
        return 0


def escape_texts(texts: Sequence[str | None]) -> Sequence[str]:
    """Each text as it stands between the quotes of a JSON string; `None` is empty.

    Nearly always there is nothing to escape in a whole batch, and one pass of a fast encoder over it shows that.
    """
    present = [text or "" for text in texts] if None in texts else cast(Sequence[str], texts)
    joined = "".join(present)
    if len(msgspec.json.encode(joined)) == len(joined.encode()) + len('""'):
        return present
    return [dumps(text)[1:-1] for text in present]
