"""Mails: their occasions, texts and recipients.

The occasions, the subjects and the facts are Marathon's; the numbers of recipients and the reasons are added. A mail
about a job with a credential counts messages by state, and explains how a retry sends the rest. A `Letter` refuses any
text that would end a line of its head, so no header or address can be injected.
"""

import re
import unicodedata
from collections.abc import Mapping
from email.utils import format_datetime
from enum import StrEnum
from shlex import quote
from typing import assert_never

import msgspec
from msgspec import Struct

from shared.audience.rules.zones import REST, SKIP
from shared.core.errors import Invalid
from shared.core.instants import from_ns
from shared.jobs.rules.batches import Totals
from shared.jobs.rules.events import EventState
from shared.jobs.rules.jobs import Job

ACCEPTED = "ack"
"""The feedback key of pushes that the push service accepted."""

_ID = re.compile(r"[A-Za-z0-9._-]+@[A-Za-z0-9.-]+")
_MAILBOX = re.compile(r"""[^\s@<>()\[\],;:\\"\x00-\x1f\x7f]+@[^\s@<>()\[\],;:\\"\x00-\x1f\x7f]+""")
_UNPRINTABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})  # controls, lone surrogates, ends of lines and paragraphs
_LABEL_WIDTH = 15
_LINE_CHARACTERS = 1_000  # a filter may have 64 KiB


class MailKind(StrEnum):
    CREATED = "created"
    SCHEDULED = "scheduled"
    PAUSED = "paused"
    STOPPED = "stopped"
    TRIPPED = "circuitbreak"
    COMPLETED = "completed"


SUBJECTS: dict[MailKind, str] = {
    MailKind.CREATED: "New {} job created",
    MailKind.SCHEDULED: "New {} job scheduled",
    MailKind.PAUSED: "{} job entered paused state",
    MailKind.STOPPED: "{} job stopped",
    MailKind.TRIPPED: "{} job entered circuit break state",
    MailKind.COMPLETED: "{} job completed",
}
"""Marathon's subjects, with "push" or "message" in them."""

_UNANSWERED = ("unsent", "sending")
_RETRIED = ("failed", "unsent")


class Letter(Struct, frozen=True):
    """A mail in plain text. `id` is its Message-ID without angle brackets, the same at each sending."""

    id: str
    to: tuple[str, ...]
    subject: str
    text: str

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise Invalid("a Message-ID is made of letters, digits, '.', '-' and '_' around one @", field="id")
        if not self.to or not all(map(is_mailbox, self.to)):
            raise Invalid("a mail needs addresses such as name@example.com", field="to")
        if not self.subject or printable(self.subject) != self.subject:
            raise Invalid("a subject is one line of printable characters", field="subject")
        if not self.text or any(printable(line) != line for line in self.text.split("\n")):
            raise Invalid("a mail's text is made of lines of printable characters", field="text")

    def __repr__(self) -> str:
        """No address and no text, because logs contain it."""
        return f"Letter({self.id!r}, {self.subject!r}, recipients={len(self.to)})"


class Mailing(Struct, frozen=True):
    """The mail settings of a deployment.

    `addressees` get all mails; the maker of a job gets none if their address contains an entry of `blacklist`. `domain`
    makes Message-IDs unique in the world; `host` is the machine named in mails. `platforms` are the usual names of a
    service's devices.
    """

    domain: str
    addressees: tuple[str, ...] = ()
    blacklist: tuple[str, ...] = ()
    host: str = ""
    platforms: Mapping[str, str] = {}


def is_mailbox(address: str) -> bool:
    return _MAILBOX.fullmatch(address) is not None and printable(address) == address


def printable(text: str) -> str:
    """The text on one line, with `?` in place of invisible characters."""
    return "".join("?" if unicodedata.category(character) in _UNPRINTABLE else character for character in text)


def arrival(job: Job) -> MailKind:
    return MailKind.SCHEDULED if job.starts_at else MailKind.CREATED


def recipients(created_by: str, mailing: Mailing) -> tuple[str, ...]:
    """The addresses of a mail about the job of this user, each once. A service's token has no address."""
    unwanted = any(entry and entry in created_by for entry in mailing.blacklist)
    creator = () if unwanted or not is_mailbox(created_by) else (created_by,)
    return tuple({address.casefold(): address for address in (*creator, *mailing.addressees)}.values())


def letter_id(job_key: str, kind: MailKind, at_ns: int, domain: str) -> str:
    """The Message-ID of the mail about the move at `at_ns`, the same in every process."""
    return f"{job_key}.{kind.value}.{at_ns}@{domain}"


def write_letter(
    kind: MailKind,
    job: Job,
    totals: Totals,
    *,
    at_ns: int,
    mailing: Mailing,
    by: str = "",
    reasons: Mapping[str, int] | None = None,
    states: Mapping[str, int] | None = None,
) -> Letter | None:
    """The mail about a move of a job at `at_ns`; `None` if it has no recipients.

    `by` made the move, "" for Carillon itself. `totals` and `reasons` are the present sums; without `reasons`, the
    job's own count. For a job with a credential, `states` counts messages by state.
    """
    to = recipients(job.created_by, mailing)
    if not to:
        return None
    why = job.reasons if reasons is None else reasons
    numbers = _numbers(totals, why) if states is None else _counted_messages(states, why)
    match kind:
        case MailKind.CREATED | MailKind.SCHEDULED:
            parts = [_description(job, mailing), _audience(job)]
        case MailKind.PAUSED | MailKind.TRIPPED:
            parts = [_identity(job, mailing), numbers, _outlook(kind, job)]
        case MailKind.STOPPED:
            parts = [_identity(job, mailing), numbers, _after_stop(job, states)]
        case MailKind.COMPLETED:
            end = _feedback(job, totals) if states is None else _retry(job, states)
            written = write_table({"Held-out users": job.control_group_csv_path, "Written by": mailing.host})
            parts = [_identity(job, mailing), numbers, end, written]
        case _:
            assert_never(kind)
    text = "\n\n".join([clip(_first_sentence(kind, job, by, at_ns)), *filter(None, parts)])
    subject = SUBJECTS[kind].format(_noun(job))
    return Letter(letter_id(job.key, kind, at_ns, mailing.domain), to, subject[0].upper() + subject[1:], text + "\n")


def _noun(job: Job) -> str:
    return "message" if job.credential_id else "push"


def _first_sentence(kind: MailKind, job: Job, by: str, at_ns: int) -> str:
    a_job = f"A {_noun(job)} job"
    match kind:
        case MailKind.CREATED:
            return f"{a_job} was created for {job.app_name}. It starts at once."
        case MailKind.SCHEDULED:
            return f"{a_job} was scheduled for {job.app_name}. It starts at {_start(job)}."
        case MailKind.PAUSED:
            return f"{a_job} of {job.app_name} was paused by {by or 'Carillon'}."
        case MailKind.STOPPED:
            return f"{a_job} of {job.app_name} was stopped by {by or 'Carillon'}."
        case MailKind.TRIPPED:
            return f"{a_job} of {job.app_name} is held: {_cause(job, at_ns)}."
        case MailKind.COMPLETED:
            return f"{a_job} of {job.app_name} is completed."
        case _:
            assert_never(kind)


def _cause(job: Job, at_ns: int) -> str:
    told = [event.message for event in job.events if event.at == at_ns and event.state is EventState.FAIL]
    unknown = "too many of its messages bounced" if job.credential_id else "too many of its batches failed"
    return told[-1] if told else unknown


def _identity(job: Job, mailing: Mailing) -> str:
    return write_table({
        "App": job.app_name,
        "Name": clip(job.name),
        "Template": ", ".join(job.template_names),
        "Platform": "" if job.credential_id else mailing.platforms.get(job.service, job.service),
        "Credential": job.credential_id,
        "Provider": job.table_kind if job.credential_id else "",
        "Dry run": "yes: no provider is called" if job.counts_only else "",
        "Job": job.id,
        "Group": job.group_id if job.localized else "",
        "Created by": job.created_by,
        "Fault": job.failure,
    })  # fmt: skip


def _description(job: Job, mailing: Mailing) -> str:
    times = write_table({
        "Scheduled": f"yes, for {_start(job)}" if job.starts_at else "no",
        "Localized": "" if job.credential_id else _localization(job),
        "Expires": _moment(job.expires_at) if job.expires_at else "",
        "Control group": f"{job.control_group * 100:g} % of the users get nothing" if job.control_group else "",
    })  # fmt: skip
    return f"{_identity(job, mailing)}\n{times}"


def _start(job: Job) -> str:
    zones = {"": "", REST: " for users without a known time zone"}
    return _moment(job.starts_at) + zones.get(job.zone, f" in the zone {job.zone}")


def _localization(job: Job) -> str:
    if not job.localized:
        return "no"
    late = "gets nothing" if job.past_time_strategy == SKIP else "gets it a day later"
    return f"yes: each time zone at its own time, and one where that has passed {late}"


def _audience(job: Job) -> str:
    people = "recipients" if job.credential_id else "users"
    if job.csv_path:
        return f"To the {people} in the file {clip(job.csv_path)}."
    if job.filters:
        return f"To the {people} whom these filters keep:\n{_filter_lines(job.filters)}"
    if job.credential_id:
        return "To everybody in the table: it has neither filters nor a CSV file."
    return "To everybody: it has neither filters nor a CSV file."


def _numbers(totals: Totals, reasons: Mapping[str, int]) -> str:
    lines = [
        _line("Batches", _share_of(totals.settled, totals.batches)),
        _line("Recipients", _share_of(totals.done, totals.planned)),
        _line("  sent", f"{totals.sent:,}"),
        _line("  held out", f"{totals.held_out:,}"),
        _line("  skipped", f"{totals.skipped:,}"),
        _line("  failed", f"{totals.failed:,}"),
    ]
    if totals.unknown:
        lines += [_line("Users without a device", f"{totals.unknown:,}")]
    return "\n".join([*lines, *_reason_lines("Skipped and failed, by reason:", reasons)])


def _counted_messages(states: Mapping[str, int], reasons: Mapping[str, int]) -> str:
    planned = sum(states.values())
    answered = planned - sum(states.get(state, 0) for state in _UNANSWERED)
    lines = [_line("Messages", _share_of(answered, planned))]
    lines += [_line(f"  {state}", f"{count:,}") for state, count in states.items() if count]
    return "\n".join([*lines, *_reason_lines("Failed and invalid, by reason:", reasons)])


def _reason_lines(head: str, reasons: Mapping[str, int]) -> list[str]:
    return [head, *(_line(f"  {key}", f"{count:,}") for key, count in _by_size(reasons))] if reasons else []


def _after_stop(job: Job, states: Mapping[str, int] | None) -> str:
    if states is None:
        return "A stopped job cannot be resumed, and what was sent cannot be taken back."
    return "\n".join(filter(None, ["Messages that were sent cannot be taken back.", _retry(job, states)]))


def _retry(job: Job, states: Mapping[str, int]) -> str:
    named = " ".join(f"--state {state}" for state in _RETRIED if states.get(state))
    lines = []
    if named:
        lines += ["Once the job has ended, a retry sends the rest:"]
        lines += [clip(f"  carillon jobs retry {job.id} {named} --app {quote(job.app_name)}")]
    if states.get("unknown"):
        lines += ["Unknown messages may have been sent: only --state unknown sends them again."]
    return "" if job.counts_only else "\n".join(lines)


def _outlook(kind: MailKind, job: Job) -> str:
    sentences = [
        "It waits until a user resumes or stops it, however long that takes: what is not sent is kept.",
        "Once it is resumed, only later failures count." if kind is MailKind.TRIPPED else "",
        "If its start passes meanwhile, it starts when it is resumed." if job.waits else "",
        f"It expires at {_moment(job.expires_at)}: nothing is sent from then on." if job.expires_at else "",
    ]
    return "\n".join(filter(None, sentences))


def _feedback(job: Job, totals: Totals) -> str:
    counts = {ACCEPTED: job.feedbacks.get(ACCEPTED, 0)} | dict(_by_size(job.feedbacks))
    lines = (_line(f"  {key}", f"{_percent(count, totals.planned)} ({count:,})") for key, count in counts.items())
    return "\n".join(["Feedback so far, of all recipients:", *lines])


def _by_size(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _share_of(part: int, whole: int) -> str:
    return f"{_percent(part, whole)} ({part:,} of {whole:,})"


def _percent(part: int, whole: int) -> str:
    """Rounded down, so that 100 % means all."""
    return f"{part * 1_000 // whole / 10:.1f} %" if whole else "-"


def _moment(at: int) -> str:
    """RFC 1123 in UTC, as Marathon writes it."""
    return format_datetime(from_ns(at), usegmt=True).replace("GMT", "UTC")


def _filter_lines(filters: Mapping[str, str]) -> str:
    text = msgspec.json.format(msgspec.json.encode(filters, order="sorted"), indent=2).decode()
    return "\n".join(f"  {clip(line)}" for line in text.split("\n"))


def write_table(facts: Mapping[str, str]) -> str:
    return "\n".join(_line(label, value) for label, value in facts.items() if value)


def _line(label: str, value: str) -> str:
    return f"{clip(label) + ':':<{_LABEL_WIDTH}} {clip(value)}"


def clip(text: str) -> str:
    return printable(text if len(text) <= _LINE_CHARACTERS else f"{text[:_LINE_CHARACTERS]}…")
