"""The screening of a batch's rows by their entries in the ledger: call now, later, or never."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from services.worker.messages.contents import BatchContents
from services.worker.messages.entries import BatchTaken, Note, Prepared, Purpose
from services.worker.messages.mailings import MessagesOfJob
from services.worker.messages.reading import RecipientRows
from shared.domain.audience.audiences import normal_locale
from shared.domain.jobs.batches import Batch
from shared.domain.jobs.jobs import split_key
from shared.domain.messages.answers import Reason
from shared.domain.messages.batches import receipt_of_entries
from shared.domain.messages.channels import Channel
from shared.domain.messages.credentials import Credential
from shared.domain.messages.jobs import due_at
from shared.domain.messages.ledger import Message, entry_id
from shared.domain.messages.recipients import Address, Malformed, address_reader
from shared.domain.messages.tags import UNSUBSCRIBE_URL
from shared.flow.messages.barring import find_barred
from shared.flow.messages.unsubscribing import UnsubscribeLinks
from shared.store import Store


class Screened(Struct):
    """The messages to call, and the notes on those that are never called."""

    prepared: list[Prepared]
    rejected: list[Note]


class _Row(Struct, frozen=True):
    """A row whose message may be called now: its place among the rows, its entry's id, and its entry if any."""

    place: int
    id: str
    entry: Message | None


async def screen(
    store: Store,
    links: UnsubscribeLinks,
    mailing: MessagesOfJob,
    credential: Credential,
    batch: Batch,
    rows: RecipientRows,
    entries: Mapping[str, Message],
    *,
    now: datetime,
) -> Screened:
    """Choose the messages of these rows to call now. A message that was sent to an earlier address of its row is not
    called again, because the columns belong to the new address."""
    due = [*_due_rows(mailing, credential, batch, rows, entries, now)]
    read = address_reader(mailing.options.channel, mailing.options.default_region, kind=credential.kind)
    addresses = [read(rows.recipients[row.place]) for row in due]
    known = [address for address in addresses if isinstance(address, str)]
    found = await find_barred(store, mailing.job.app_id, mailing.options, known)
    contents = _contents_of(links, mailing, rows, due, addresses)
    flaws = await contents.find_flaws(credential)
    screened, called, own_locale = Screened([], []), [], normal_locale(mailing.options.locale)
    for place, (row, address) in enumerate(zip(due, addresses, strict=True)):
        spelled = rows.recipients[row.place] if isinstance(address, Malformed) else address
        locale = contents.locales[place]
        message = row.entry or Message(
            id=row.id,
            app_id=mailing.job.app_id,
            credential_id=credential.id,
            to=spelled,
            locale="" if locale == own_locale else locale,
        )
        prepared = Prepared(message, {}, row.entry is not None, spelled)
        # A redacted entry has lost it, and former versions had other forms.
        if message.to not in ("", spelled) and read(message.to) != address:
            screened.rejected.append(_reject(prepared, Reason.ADDRESS_CHANGED, "", now))
        elif isinstance(address, Malformed):
            screened.rejected.append(_reject(prepared, Reason.MALFORMED, address.why, now))
        elif (reason := found.get(address)) is not None:
            screened.rejected.append(_reject(prepared, reason, "", now))
        elif place in flaws:
            screened.rejected.append(_reject(prepared, Reason.UNRENDERED, flaws[place], now))
        else:
            screened.prepared.append(prepared)
            called.append(place)
    for prepared, content in zip(screened.prepared, contents.split(called), strict=True):
        prepared.content = content
    return screened


def ids_of(batch: Batch, rows: RecipientRows) -> Sequence[str]:
    """The ids of the entries of these rows."""
    incarnation = split_key(batch.job_id)[1]
    return [entry_id(incarnation, batch.ordinal, number) for number in rows.numbers]


async def fit(
    store: Store, batch: Batch, rows: RecipientRows, entries: Mapping[str, Message], *, resent: bool
) -> Batch:
    """The batch with its real size: the present rows, and the entries of rows that have gone. So the ledger never
    counts more than is planned. The receipt of a batch that is `resent` may lack reports that came after it was
    settled. Raises `BatchTaken` if the batch has another owner."""
    size, receipt = len({*ids_of(batch, rows), *entries}), receipt_of_entries(entries.values())
    if size == batch.size and (receipt == batch.receipt or not resent):
        return batch
    fitted = await store.message_batches.fit(batch, size=size, receipt=receipt)
    if fitted is None:
        raise BatchTaken
    return fitted


def _due_rows(
    mailing: MessagesOfJob,
    credential: Credential,
    batch: Batch,
    rows: RecipientRows,
    entries: Mapping[str, Message],
    now: datetime,
) -> Iterable[_Row]:
    for place, message_id in enumerate(ids_of(batch, rows)):
        entry = entries.get(message_id)
        due = due_at(entry, mailing.resending, credential.retry, now=now)
        if due is not None and due <= now:
            yield _Row(place, message_id, entry)


def _contents_of(
    links: UnsubscribeLinks,
    mailing: MessagesOfJob,
    rows: RecipientRows,
    due: Sequence[_Row],
    addresses: Sequence[Address],
) -> BatchContents:
    """The contents of the messages of these rows, with the recipient's own link if there is one."""
    options = mailing.options
    columns = {name: [values[row.place] for row in due] for name, values in rows.columns.items()}
    has_button = options.channel is Channel.MAIL and not options.transactional
    if not has_button and UNSUBSCRIBE_URL not in mailing.texts.tags:
        return BatchContents(mailing, columns, len(due))
    known = ["" if isinstance(address, Malformed) else address for address in addresses]
    urls = links.urls_of(mailing.job.app_id, options.channel, known, options.list)
    columns[UNSUBSCRIBE_URL] = urls
    return BatchContents(mailing, columns, len(due), urls if has_button and links.can_link else ())


def _reject(prepared: Prepared, reason: Reason, detail: str, now: datetime) -> Note:
    return Note(prepared, Purpose.REJECT, at=now, reason=reason, detail=detail)
