"""Credentials: the provider accounts of jobs, what each does at a moment, and the mail about a refused login.

    active ──operator──> suspended ──operator──> active
    active ──the provider refuses the login──> rejected ──new secret, operator──> active
                                                    └──operator──> suspended

A credential belongs to an app and may be shared with others, which use it but cannot change it. Its rate holds for
all of them together. Only an active credential sends; jobs of others wait.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from math import ceil, isfinite
from typing import Any, assert_never

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from shared.core.documents import sources
from shared.core.errors import Conflict, Invalid
from shared.core.instants import from_ms, ms, ns
from shared.jobs.rules.mails import Letter, Mailing, clip, recipients, write_table
from shared.messages.rules.answers import Channel
from shared.messages.rules.pacing import Limit, Pace, effective_rate
from shared.messages.rules.places import Places, drop_expired

CREDENTIALS_OF_AN_APP = 100
"""Maximum for an app."""
SMALLEST_RATE, LARGEST_RATE = 0.01, 10_000.0
DEFAULT_RATE = 50.0
DEFAULT_RATES: Mapping[str, float] = {"twilio": 10.0}
MOST_IN_FLIGHT = 2_000
SHARING_APPS = 1_000
ATTEMPTS = 20
LONGEST_DELAY_SECONDS = 86_400.0
LARGEST_FACTOR = 100.0
RECIPIENT_CHARACTERS = 4_096
WHY_CHARACTERS = 1_000
FIELD_BYTES = 64 * 1024
SECRET_PARTS = 20
SECRET_CHARACTERS = 16 * 1024
NAME_RULE = "1 to 50 of the letters a to z, digits and '-'"
RATE_RULE = "a number from 0.01 to 10,000, in messages a second"
IN_FLIGHT_RULE = "an integer from 1 to 2,000"
_NAME = re.compile(r"[a-z0-9-]{1,50}")
_PART_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]{0,49}")
_FEWEST_IN_FLIGHT, _USUAL_MOST_IN_FLIGHT = 20, 1_000


class CredentialStatus(StrEnum):
    """Whether a credential sends."""

    ACTIVE = "active"
    SUSPENDED = "suspended"  # an operator has stopped it
    REJECTED = "rejected"  # the provider no longer accepts its secret

    @property
    def sends(self) -> bool:
        return self is CredentialStatus.ACTIVE

    @property
    def is_news(self) -> bool:
        """Whether no user of the app caused the change."""
        return self is CredentialStatus.REJECTED


CREDENTIAL_TRANSITIONS: Mapping[CredentialStatus, frozenset[CredentialStatus]] = {
    CredentialStatus.ACTIVE: frozenset({CredentialStatus.SUSPENDED, CredentialStatus.REJECTED}),
    CredentialStatus.SUSPENDED: frozenset({CredentialStatus.ACTIVE}),
    CredentialStatus.REJECTED: frozenset({CredentialStatus.ACTIVE, CredentialStatus.SUSPENDED}),
}


class SendOrder(StrEnum):
    """The order of a credential's jobs."""

    AGE = "age"  # the oldest first
    SHARES = "shares"  # the job with the smallest used share first


class OnUnknown(StrEnum):
    """The treatment of a message that the provider may or may not have."""

    HOLD = "hold"  # nothing, until a user asks for it
    RETRY = "retry"  # it is sent again


class SendRetry(Struct, frozen=True, kw_only=True):
    """The attempts at a message that the provider does not take now, and the pauses between them: from
    `first_delay_seconds`, growing by `factor` up to `cap_seconds`."""

    attempts: int = 3
    first_delay_seconds: float = 5.0
    factor: float = 4.0
    cap_seconds: float = 300.0

    def delay_after(self, attempt: int) -> timedelta:
        """The pause after this attempt; the first is 1."""
        seconds = self.first_delay_seconds
        for _ in range(min(attempt, self.attempts) - 1):
            seconds = min(seconds * self.factor, self.cap_seconds)
        return timedelta(seconds=min(seconds, self.cap_seconds))


class Credential(Struct, frozen=True, kw_only=True):
    """A provider account. `fields` belong to its kind. `secret` is sealed for this id alone; `""` if the kind needs
    none. A message with `test_content`, or a default for the channel, to `test_recipient` shows whether it works. `why`
    explains a status that does not send. `version` grows with every change of a user."""

    id: str
    app_id: str
    name: str
    kind: str
    fields: dict[str, Any]
    secret: str = ""
    fingerprint: str = ""
    rate: float
    max_in_flight: int
    order: SendOrder = SendOrder.AGE
    on_unknown: OnUnknown = OnUnknown.HOLD
    retry: SendRetry = SendRetry()
    test_recipient: str
    test_content: dict[str, Any] = {}
    shared_with: tuple[str, ...] = ()
    status: CredentialStatus = CredentialStatus.ACTIVE
    why: str = ""
    created_by: str
    created_at: datetime
    updated_at: datetime
    version: int = 1

    def __repr__(self) -> str:
        """No secret or personal data, because logs contain it."""
        return f"Credential({self.id}, {self.name!r}, {self.kind!r}, {self.status.value})"

    @property
    def sends(self) -> bool:
        return self.status.sends

    @property
    def is_rejected(self) -> bool:
        return self.status is CredentialStatus.REJECTED

    @property
    def usable_by(self) -> tuple[str, ...]:
        """The ids of the apps whose jobs may use it."""
        return (self.app_id, *(app_id for app_id in self.shared_with if app_id != self.app_id))

    @property
    def sealed_by(self) -> str:
        return self.secret.partition(".")[2].partition(".")[0]

    def with_rate(self, rate: float) -> "Credential":
        """With another rate. `max_in_flight` follows if it was the default of the old rate."""
        if self.max_in_flight != default_max_in_flight(self.rate):
            return replace(self, rate=rate)
        return replace(self, rate=rate, max_in_flight=default_max_in_flight(rate))

    def with_secret(self, fields: dict[str, Any], secret: str, fingerprint: str) -> "Credential":
        """With a new, accepted secret: a rejected credential sends again."""
        known = replace(self, fields=fields, secret=secret, fingerprint=fingerprint)
        if self.status is not CredentialStatus.REJECTED:
            return known
        return replace(known, status=CredentialStatus.ACTIVE, why="")


class Traffic(Struct, frozen=True, kw_only=True):
    """The fields that grants change or depend on. `pace` and `places` are stored together, by compare-and-set on
    `pace.seq`: every change of either raises it."""

    pace: Pace
    places: Places
    rate: float
    max_in_flight: int
    order: SendOrder
    status: CredentialStatus

    @property
    def flows(self) -> bool:
        return self.status is CredentialStatus.ACTIVE


def default_rate(kind: str) -> float:
    return DEFAULT_RATES.get(kind, DEFAULT_RATE)


def default_max_in_flight(rate: float) -> int:
    """The default limit of calls in flight at this rate, for a provider that takes half a second."""
    return max(_FEWEST_IN_FLIGHT, min(ceil(rate / 2), _USUAL_MOST_IN_FLIGHT))


def default_on_unknown(channel: Channel) -> OnUnknown:
    """A repeated push replaces the first on the device."""
    return OnUnknown.RETRY if channel is Channel.PUSH else OnUnknown.HOLD


def check_credential(credential: Credential) -> None:
    """Raise `Invalid` for the first field that breaks its rule; the kind checks its own fields."""
    if _NAME.fullmatch(credential.name) is None:
        raise Invalid(f"a credential's name is {NAME_RULE}", field="name", value=credential.name)
    _check_size(credential.fields, "fields")
    _check_size(credential.test_content, "testContent")
    _check_number(credential.rate, SMALLEST_RATE, LARGEST_RATE, field="rate", rule=RATE_RULE)
    _check_number(credential.max_in_flight, 1, MOST_IN_FLIGHT, field="maxInFlight", rule=IN_FLIGHT_RULE)
    _check_retry(credential.retry)
    _check_recipient(credential.test_recipient)


def check_secret(secret: Mapping[str, str]) -> None:
    """Raise `Invalid` if the secret is too large or has an invalid name of a part. The error shows nothing of it."""
    if len(secret) > SECRET_PARTS:
        raise Invalid(f"a secret has at most {SECRET_PARTS} parts", field="secret")
    for name, text in secret.items():
        if _PART_NAME.fullmatch(name) is None:
            rule = "the name of a secret's part is a letter, and up to 49 letters and digits"
            raise Invalid(rule, field="secret")
        if not 1 <= len(text) <= SECRET_CHARACTERS:
            rule = f"a part of a secret has 1 to {SECRET_CHARACTERS:,} characters"
            raise Invalid(rule, field=f"secret.{name}")


def check_sends(credential: Credential) -> None:
    if not credential.sends:
        reason = f": {credential.why}" if credential.why else ""
        raise Conflict(f"the credential {credential.name} is {credential.status.value}{reason}", field="credential")


def check_move(credential: Credential, to: CredentialStatus) -> None:
    if credential.status not in sources(CREDENTIAL_TRANSITIONS, to):
        raise Conflict(f"the credential is {credential.status.value}", field="status", value=credential.status.value)


def trial_content(credential: Credential, channel: Channel) -> dict[str, Any]:
    if credential.test_content:
        return credential.test_content
    text = f"This message shows that Carillon can send by the credential {credential.name}."
    match channel:
        case Channel.MAIL:
            return {"subject": f"Test of {credential.name}", "text": text}
        case Channel.PUSH if credential.kind == "apns":
            return {"aps": {"alert": text}}
        case Channel.PUSH:
            return {"notification": {"title": "Carillon", "body": text}}
        case Channel.SMS | Channel.OTHER:
            return {"text": text}
        case _:
            assert_never(channel)


def _check_number(number: float, least: float, most: float, *, field: str, rule: str) -> None:
    if not (isfinite(number) and least <= number <= most):
        # JSON has no other numbers, and a problem document is JSON.
        raise Invalid(f"{field} is {rule}", field=field, value=number if isfinite(number) else None)


def _check_retry(retry: SendRetry) -> None:
    _check_number(retry.attempts, 1, ATTEMPTS, field="retry.attempts", rule=f"an integer from 1 to {ATTEMPTS}")
    rule = f"a number from 0.1 to {LONGEST_DELAY_SECONDS:,.0f}"
    _check_number(retry.first_delay_seconds, 0.1, LONGEST_DELAY_SECONDS, field="retry.firstDelaySeconds", rule=rule)
    rule = f"a number from 1 to {LARGEST_FACTOR:,.0f}"
    _check_number(retry.factor, 1, LARGEST_FACTOR, field="retry.factor", rule=rule)
    rule = f"a number from retry.firstDelaySeconds to {LONGEST_DELAY_SECONDS:,.0f}"
    _check_number(
        retry.cap_seconds, retry.first_delay_seconds, LONGEST_DELAY_SECONDS, field="retry.capSeconds", rule=rule
    )


def _check_recipient(recipient: str) -> None:
    if not (1 <= len(recipient) <= RECIPIENT_CHARACTERS and recipient.isprintable() and recipient == recipient.strip()):
        rule = f"1 to {RECIPIENT_CHARACTERS:,} printable characters, without blanks around them"
        raise Invalid(f"testRecipient is an address that test messages go to: {rule}", field="testRecipient")


def _check_size(value: Mapping[str, Any], field: str) -> None:
    if len(msgspec.json.encode(value)) > FIELD_BYTES:
        raise Invalid(f"{field} has at most {FIELD_BYTES:,} bytes as JSON", field=field)


_QUIET_US = 2_000_000


class WaitingJob(Struct, frozen=True):
    """An open job of a credential: `since` when it may send, and whether it `runs`."""

    key: str
    since: datetime
    runs: bool


class CredentialQueue(Struct, frozen=True, kw_only=True):
    """The queue of a credential: its open `jobs` and their uncalled `messages`. The `held` ones belong to jobs that do
    not run now. The oldest of the others has waited since `oldest`."""

    jobs: int = 0
    messages: int = 0
    held: int = 0
    oldest: datetime | None = None


class CredentialStanding(Struct, frozen=True, kw_only=True):
    """The standing of a credential. `limited_by` is `None` if it sends nothing; `hold_until` is `None` without a pause
    of the provider's."""

    effective_rate: float
    limited_by: Limit | None
    hold_until: datetime | None
    queue: CredentialQueue


def queue_of(jobs: Sequence[WaitingJob], unsent: Mapping[str, int]) -> CredentialQueue:
    left = {job.key: unsent.get(job.key, 0) for job in jobs}
    return CredentialQueue(
        jobs=len(jobs),
        messages=sum(left.values()),
        held=sum(left[job.key] for job in jobs if not job.runs),
        oldest=min((job.since for job in jobs if job.runs and left[job.key]), default=None),
    )


def standing_at(traffic: Traffic, queue: CredentialQueue, now: datetime) -> CredentialStanding:
    now_us, hold = ms(now) * 1_000, from_ms(-(-traffic.pace.hold_until_us // 1_000))
    return CredentialStanding(
        effective_rate=effective_rate(traffic.pace, traffic.rate, now_us) if traffic.flows else 0.0,
        limited_by=_limit_at(traffic, queue, now_us) if traffic.flows else None,
        hold_until=hold if hold > now else None,
        queue=queue,
    )


def _limit_at(traffic: Traffic, queue: CredentialQueue, now_us: int) -> Limit:
    """The present limit. The limits that workers report count while their places do."""
    if queue.messages == queue.held:
        return Limit.WORK
    pace, told = traffic.pace, {place.limit for place in drop_expired(traffic.places, now_us)}
    if Limit.CLOCK in told or pace.free_us > now_us:
        return Limit.CLOCK
    if pace.hold_until_us > now_us or pace.share_at(now_us) < 1:
        return Limit.PROVIDER
    if Limit.IN_FLIGHT in told:
        return Limit.IN_FLIGHT
    interval_us = int(1_000_000 / traffic.rate)
    if told == {Limit.WORK} or pace.last_us + interval_us + _QUIET_US < now_us:
        return Limit.WORK
    return Limit.RATE


def write_rejection(credential: Credential, app_name: str, mailing: Mailing) -> Letter | None:
    """The mail about a rejected credential; `None` if it has no recipients. It shows nothing of the secret."""
    to = recipients(credential.created_by, mailing)
    if not to:
        return None
    facts = {
        "App": app_name,
        "Credential": credential.name,
        "Kind": credential.kind,
        "Provider says": credential.why,
        "Written by": mailing.host,
    }
    text = "\n\n".join([
        clip(f"The provider refuses the login of the credential {credential.name} of {app_name}."),
        write_table(facts),
        "Its jobs wait, and nothing of them is lost. They go on once it has a secret that the provider takes:",
        clip(f"  carillon credentials secret {credential.name} @secret.json --app {app_name}"),
    ])  # fmt: skip
    id_ = f"credential-{credential.id}.rejected.{ns(credential.updated_at)}@{mailing.domain}"
    return Letter(id_, to, "Credential rejected by its provider", text + "\n")
