"""Receipts: later reports of providers about messages, folded into the ledger.

    read the entries ──> decide what each becomes ──> write all, with tallies and suppressions, in one transaction
            ^                                                  │
            └──────── an entry has changed since ────────────────┘

Reports of concurrent requests share transactions, up to `FOLDED_AT_ONCE` at a time. An entry only ever rises in
rank (`ledger.hear`), so reports may come twice, in any order, by several processes, and after a write whose reply
was lost. An unexpected error affects only its own report: the others are stored. Hard bounces, complaints and
refusals after an unsubscription suppress the address in the same transaction; unsubscriptions suppress it for the
message's list.

A message is found by Carillon's key if the provider returns it, else by the provider's id. A report about an
unknown message may have overtaken the record of its call: while it is young, the provider is asked to repeat it.
Reports without any id only suppress the address that they name.

They come by callbacks, which are unauthenticated requests: the credential's secret is opened once, then its kind
verifies and reads the request as receipts or as a confirmed subscription.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from http import HTTPStatus
from itertools import groupby
from operator import attrgetter

import structlog
from cachetools import LRUCache
from msgspec import Struct
from msgspec.structs import replace

from shared.core.errors import Conflict, Invalid, NotFound, Refused, Unavailable
from shared.drivers.http import Blocked, Outgoing, Posting, Unreachable
from shared.drivers.secrets import KeyRing
from shared.messages.barring import bar_of
from shared.messages.rules.answers import Channel
from shared.messages.rules.credentials import Credential
from shared.messages.rules.ledger import Message, News, attempt_of, hear, ref_of
from shared.messages.rules.recipients import Malformed, read_address
from shared.messages.rules.suppressions import EVERYTHING, Suppression, SuppressionCause, suppress_address
from shared.messages.store_ledger import EntryChange, WriteResult
from shared.providers import ProviderKind, read_key
from shared.providers.base import Callback, CallbackNews, CallbackRequest, CallbackSuppression, NotSigned
from shared.runtime.cached import Coalescer
from shared.runtime.clock import Clock
from shared.runtime.faults import fault
from shared.runtime.metrics import CALLBACKS
from shared.store import Store

log = structlog.get_logger(__name__)
FOLDED_AT_ONCE = 500
YOUNG = timedelta(minutes=10)
"""A provider is asked to repeat a report about an unknown message for this long."""
_TRIES = 12
_WHOLE_TRIES = 3


class ReceiptOutcome(StrEnum):
    STORED = "stored"
    UNCHANGED = "unchanged"  # known already, or overtaken
    EARLY = "early"  # of an unknown message: the provider has to repeat it
    SKIPPED = "skipped"  # of an unknown message, and too old to wait for it
    TEST = "test"  # of the test message of a credential, which has no entry


_Outcome = ReceiptOutcome | Exception | None
_Told = CallbackNews | CallbackSuppression


class EarlyNews(Refused, Unavailable):
    """Some reports may have overtaken the record of their message: the provider has to repeat them."""


class _Fact(Struct, frozen=True):
    """A change of one entry, which is found by its id, or by `ref` if the id is `""`. If `credential_id` is set, the
    entry must be of that credential."""

    message_id: str
    change: Callable[[Message], Message | None]
    ref: str = ""
    credential_id: str = ""
    channel: Channel | None = None
    recipient: str = ""


class _Folding(Struct):
    """An entry as read, its steps, and its result; with the channel, and the recipient in the provider's words."""

    before: Message
    between: tuple[Message, ...]
    after: Message
    channel: Channel | None
    recipient: str


class Receipts:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._fold = Coalescer(self._fold_portions, most=FOLDED_AT_ONCE, size=len)

    async def fold(self, credential: Credential, channel: Channel, callback: Callback) -> Counter[ReceiptOutcome]:
        """Store the reports of a callback about messages of this credential; returns the number of each outcome.

        Raises:
            EarlyNews: the provider has to repeat the callback; everything that could be stored is stored.
            Unavailable: the store is away. Some reports may be stored.
        """
        now, counts = self._clock.now(), Counter[ReceiptOutcome]()
        trial = f"test-{credential.id}-"
        named = [news for news in callback.news if news.key or news.provider_id]
        known = [news for news in named if not news.key.startswith(trial)]
        if len(known) < len(named):
            counts[ReceiptOutcome.TEST] = len(named) - len(known)
        facts = [_fact_of(news, credential, channel, now) for news in known]
        for news, outcome in zip(known, await self._fold_all(facts), strict=True):
            counts[outcome if outcome is not None else _judge_unknown(news, callback.at, now)] += 1
        nameless = [news for news in callback.news if not (news.key or news.provider_id)]
        counts += await self._suppress_nameless(credential, channel, nameless, now)
        told = [each for each in callback.suppressions if not each.key.startswith(trial)]
        counts += await self._suppress(credential, channel, told, called_at=callback.at)
        for outcome, count in counts.items():
            CALLBACKS.labels(credential.kind, outcome).inc(count)
        if counts[ReceiptOutcome.EARLY]:
            raise EarlyNews("this tells of a message that is not known yet: please come again")
        return counts

    async def _suppress_nameless(
        self, credential: Credential, channel: Channel, nameless: Sequence[CallbackNews], now: datetime
    ) -> Counter[ReceiptOutcome]:
        """Suppress addresses that the provider reports as dead without naming a message."""
        blank = Message(id="", app_id=credential.app_id, credential_id=credential.id)
        bars = [
            bar_of(blank, replace(blank, reason=news.reason), channel, at=news.at or now, recipient=news.recipient)
            for news in nameless
        ]
        await self._store.suppressions.add([bar for bar in bars if bar is not None])
        return Counter(ReceiptOutcome.SKIPPED if bar is None else ReceiptOutcome.STORED for bar in bars)

    async def _suppress(
        self,
        credential: Credential,
        channel: Channel,
        told: Sequence[CallbackSuppression],
        *,
        called_at: datetime | None,
    ) -> Counter[ReceiptOutcome]:
        """Suppress recipients to whom the provider sends nothing more; after an unsubscription only for the message's
        list."""
        now = self._clock.now()
        entries = await self._find([_fact_of(each, credential, channel, now) for each in told])
        lists = await self._lists_of([entry for entry in entries if entry is not None])
        counts, suppressions = Counter[ReceiptOutcome](), list[Suppression]()
        for each, entry in zip(told, entries, strict=True):
            address = read_address(entry.to if entry is not None and entry.to else each.recipient, channel)
            is_named = bool(each.key or each.provider_id)
            unknown = _judge_unknown(each, called_at, now) if entry is None and is_named else None
            if unknown is ReceiptOutcome.EARLY or (unknown is not None and not each.key):
                counts[unknown] += 1
            elif isinstance(address, Malformed):
                counts[ReceiptOutcome.SKIPPED] += 1
            else:  # the list of a removed message is unknown
                counts[ReceiptOutcome.STORED] += 1
                of_list = entry if each.cause is SuppressionCause.UNSUBSCRIBE else None
                suppressions.append(
                    suppress_address(
                        credential.app_id,
                        channel,
                        address,
                        cause=each.cause,
                        at=each.at or now,
                        list_name=lists[of_list.id] if of_list is not None else EVERYTHING,
                        message_id=entry.id if entry is not None else "",
                    )
                )
        await self._store.suppressions.add(suppressions)
        return counts

    async def _lists_of(self, entries: Sequence[Message]) -> dict[str, str]:
        incarnations = {entry.id: entry.id.partition(".")[0] for entry in entries if entry.single is None}
        lists = await self._store.message_jobs.lists_of(set(incarnations.values())) if incarnations else {}
        of_jobs = {entry_id: lists.get(incarnation, EVERYTHING) for entry_id, incarnation in incarnations.items()}
        return of_jobs | {entry.id: entry.single.list for entry in entries if entry.single is not None}

    async def _fold_all(self, facts: Sequence[_Fact]) -> list[ReceiptOutcome | None]:
        """Fold these facts; `None` for each whose message is unknown. The unexpected error of one fact is raised after
        all others are folded."""
        outcomes: list[_Outcome] = []
        for start in range(0, len(facts), FOLDED_AT_ONCE):
            outcomes += await self._fold(facts[start : start + FOLDED_AT_ONCE])
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        return [outcome for outcome in outcomes if not isinstance(outcome, Exception)]

    async def _fold_portions(self, portions: Sequence[Sequence[_Fact]]) -> list[list[_Outcome]]:
        """Fold the facts of several requests together."""
        outcomes = iter(await self._write([fact for portion in portions for fact in portion]))
        await fault("callback.after_fold")
        return [[next(outcomes) for _ in portion] for portion in portions]

    async def _write(self, facts: Sequence[_Fact]) -> list[_Outcome]:
        """Write these facts together. After an unexpected error, write them in halves until only the fact that causes
        it fails."""
        try:
            outcomes = await self._try_to_write(facts)
        except Unavailable:
            raise
        except Exception as error:
            if len(facts) == 1:
                log.exception("what a provider tells cannot be stored", message=facts[0].message_id)
                return [error]
            outcomes = None
        return await self._write_halves(facts) if outcomes is None else outcomes

    async def _try_to_write(self, facts: Sequence[_Fact]) -> list[_Outcome] | None:
        """Write these facts in one transaction; `None` if entries keep changing: then the caller writes fewer at
        once."""
        for _ in range(_WHOLE_TRIES if len(facts) > 1 else _TRIES):
            entries = await self._find(facts)
            foldings, outcomes = _decide(facts, entries)
            if not foldings or await self._write_entries(foldings) is WriteResult.DONE:
                return outcomes
        if len(facts) > 1:
            return None
        raise Unavailable("entries change faster than they can be written")

    async def _write_halves(self, facts: Sequence[_Fact]) -> list[_Outcome]:
        middle = len(facts) // 2
        return await self._write(facts[:middle]) + await self._write(facts[middle:])

    async def _write_entries(self, foldings: Collection[_Folding]) -> WriteResult:
        changes = [EntryChange(folding.before, folding.after, folding.between) for folding in foldings]
        now = self._clock.now()
        suppressions = [bar for folding in foldings if (bar := _bar_of(folding, now)) is not None]
        if not suppressions:
            return await self._store.messages.fold(changes)
        add_in = self._store.suppressions.add_in
        return await self._store.messages.fold(changes, beside=lambda session: add_in(session, suppressions))

    async def _find(self, facts: Iterable[_Fact]) -> list[Message | None]:
        ids = {fact.message_id for fact in facts if fact.message_id}
        by_id = await self._store.messages.with_ids(sorted(ids)) if ids else {}
        by_ref: dict[str, Message] = {}
        nameless = [fact for fact in facts if not fact.message_id and fact.ref]
        for _, some in groupby(sorted(nameless, key=attrgetter("ref")), key=attrgetter("credential_id")):
            by_ref |= await self._store.messages.with_refs(sorted({fact.ref for fact in some}))
        found = [by_id.get(fact.message_id) if fact.message_id else by_ref.get(fact.ref) for fact in facts]
        return [_own(fact, entry) for fact, entry in zip(facts, found, strict=True)]


def _own(fact: _Fact, entry: Message | None) -> Message | None:
    is_own = entry is not None and fact.credential_id in ("", entry.credential_id)
    return entry if is_own else None


def _decide(facts: Iterable[_Fact], entries: Iterable[Message | None]) -> tuple[list[_Folding], list[_Outcome]]:
    """The changed entries, and the outcome of each fact."""
    foldings: dict[str, _Folding] = {}
    outcomes: list[_Outcome] = []
    for fact, entry in zip(facts, entries, strict=True):
        if entry is None:
            outcomes.append(None)
            continue
        present = foldings.get(entry.id)
        after = fact.change(entry if present is None else present.after)
        outcomes.append(ReceiptOutcome.UNCHANGED if after is None else ReceiptOutcome.STORED)
        if after is not None:
            if present is None:
                foldings[entry.id] = _Folding(entry, (), after, fact.channel, fact.recipient)
            else:
                between, recipient = (*present.between, present.after), fact.recipient or present.recipient
                foldings[entry.id] = _Folding(present.before, between, after, fact.channel, recipient)
    return list(foldings.values()), outcomes


def _fact_of(told: _Told, credential: Credential, channel: Channel, now: datetime) -> _Fact:
    message_id, attempt = read_key(told.key)
    ref = ref_of(credential.id, told.provider_id)

    def change(message: Message) -> Message | None:
        if isinstance(told, CallbackSuppression):
            return None
        news = News(
            state=told.state,
            at=told.at or now,
            attempt=attempt or attempt_of(message, ref),
            ref=ref,
            reason=told.reason,
            detail=told.detail,
        )
        return hear(message, news)

    return _Fact(message_id, change, ref, credential.id, channel, told.recipient)


def _judge_unknown(news: _Told, called_at: datetime | None, now: datetime) -> ReceiptOutcome:
    """Whether the provider has to repeat the report. It may give each call a new time: then the report's own time
    counts. A clock that is far ahead proves nothing."""
    if called_at is None:
        return ReceiptOutcome.SKIPPED
    told_at = min(called_at, news.at or called_at)
    return ReceiptOutcome.EARLY if abs(now - told_at) < YOUNG else ReceiptOutcome.SKIPPED


def _bar_of(folding: _Folding, at: datetime) -> Suppression | None:
    if folding.channel is None:
        return None
    return bar_of(folding.before, folding.after, folding.channel, at=at, recipient=folding.recipient)


_SECRETS = 1_000
_CONFIRM_SECONDS = 5.0


class CallbackFlow:
    def __init__(
        self,
        store: Store,
        load_kinds: Callable[[], Mapping[str, ProviderKind]],
        keys: KeyRing,
        outgoing: Outgoing,
        receipts: Receipts,
    ) -> None:
        self._store = store
        self._load_kinds = load_kinds
        self._keys = keys
        self._outgoing = outgoing
        self._receipts = receipts
        self._find = Coalescer(self._find_all)
        # Keyed by the sealed secret, so a replaced secret is not found here.
        self._secrets: LRUCache[tuple[str, str], Mapping[str, str]] = LRUCache(_SECRETS)

    async def require(self, credential_id: str) -> Credential:
        credential = await self._find(credential_id)
        if credential is None or credential.kind not in self._load_kinds():
            raise NotFound("no provider account has this callback URL", field="credentialId")
        return credential

    async def take(self, credential: Credential, request: CallbackRequest) -> None:
        """Store the contents of the request if the provider has signed it.

        Raises:
            NotSigned: the provider has not signed it.
            Invalid: it is signed but cannot be read.
            NotFound: providers of this kind send no callbacks.
            EarlyNews, Unavailable: the provider has to repeat it later.
        """
        callback = await self._read(credential, request)
        if callback.confirm_url:
            await self._confirm(credential, callback.confirm_url)
        await self._receipts.fold(credential, self._load_kinds()[credential.kind].channel, callback)

    async def _read(self, credential: Credential, request: CallbackRequest) -> Callback:
        kind = self._load_kinds()[credential.kind]
        try:
            return await kind.read_callback(credential.fields, self._open_secret(credential), request, self._outgoing)
        except NotSigned as error:
            CALLBACKS.labels(credential.kind, "refused").inc()
            log.warning("a callback is not the provider's", credential=credential.id, reason=error.reason)
            raise
        except Invalid as error:
            CALLBACKS.labels(credential.kind, "malformed").inc()
            log.warning("a provider's callback cannot be read", credential=credential.id, reason=error.reason)
            raise

    def _open_secret(self, credential: Credential) -> Mapping[str, str]:
        if not credential.secret:
            return {}
        opened = self._secrets.get((credential.id, credential.secret))
        if opened is None:
            try:
                opened = self._keys.open(credential.secret, credential.id)
            except Conflict as error:
                # The provider did nothing wrong, and an operator may put the key back.
                raise Unavailable(f"credential {credential.id}: {error.reason}") from None
            self._secrets[credential.id, credential.secret] = opened
        return opened

    async def _confirm(self, credential: Credential, url: str) -> None:
        posting = Posting(url, {}, b"", _CONFIRM_SECONDS, lambda: True, method="GET")
        try:
            answer = await self._outgoing.post(posting)
        except (Unreachable, Blocked) as error:
            raise Unavailable(f"the subscription cannot be confirmed: {error}") from None
        if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            raise Unavailable(f"the subscription cannot be confirmed: {answer.status}")
        CALLBACKS.labels(credential.kind, "subscription").inc()
        log.info("a subscription to callbacks is confirmed", credential=credential.id)

    async def _find_all(self, ids: Sequence[str]) -> list[Credential | None]:
        found = await self._store.credentials.with_ids(sorted(set(ids)))
        return [found.get(credential_id) for credential_id in ids]
