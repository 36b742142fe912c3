"""What is to be done with each row of a batch, by what the ledger knows of it: to be called now, or later, or never."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from services.worker.messages.entries import Note, Prepared, Purpose
from services.worker.messages.mailings import MessagesOfJob
from services.worker.messages.reading import RecipientRows
from shared.domain.jobs.batches import Batch
from shared.domain.jobs.jobs import split_key
from shared.domain.messages.answers import Reason
from shared.domain.messages.channels import Channel
from shared.domain.messages.credentials import Credential
from shared.domain.messages.jobs import due_at
from shared.domain.messages.ledger import Message, entry_id
from shared.domain.messages.recipients import Address, Malformed, address_reader
from shared.domain.messages.rendering import Body
from shared.domain.messages.tags import UNSUBSCRIBE_URL
from shared.domain.messages.unsubscribing import URL_FIELD
from shared.flow.messages.barring import find_barred
from shared.flow.messages.unsubscribing import UnsubscribeLinks
from shared.store import Store

_TOO_LARGE = "the message would be too large"


class Screened(Struct):
    """The messages to call, and the notes on those that are never called."""

    prepared: list[Prepared]
    rejected: list[Note]


class _Row(Struct, frozen=True):
    """A row whose message may be called now: its place among the rows, its entry's id, and the entry if there is
    one."""

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
    """What is to be called now of these rows. Raises `Unavailable`."""
    due = [*_due_rows(mailing, credential, batch, rows, entries, now)]
    read = address_reader(mailing.options.channel, mailing.options.default_region)
    addresses = [read(rows.recipients[row.place]) for row in due]
    known = [address for address in addresses if isinstance(address, str)]
    found = await find_barred(store, mailing.job.app_id, mailing.options, known)
    columns = {name: [values[row.place] for row in due] for name, values in rows.columns.items()}
    bodies = _render(links, mailing, columns, addresses)
    screened = Screened([], [])
    for row, address, body in zip(due, addresses, bodies, strict=True):
        spelled = rows.recipients[row.place] if isinstance(address, Malformed) else address
        message = row.entry or Message(id=row.id, app_id=mailing.job.app_id, credential_id=credential.id, to=spelled)
        prepared = Prepared(message, body or {}, row.entry is not None, spelled)
        if isinstance(address, Malformed):
            screened.rejected.append(_reject(prepared, Reason.MALFORMED, address.why, now))
        elif (reason := found.get(address)) is not None:
            screened.rejected.append(_reject(prepared, reason, "", now))
        elif body is None:
            screened.rejected.append(_reject(prepared, Reason.UNRENDERED, _TOO_LARGE, now))
        else:
            screened.prepared.append(prepared)
    return screened


def ids_of(batch: Batch, rows: RecipientRows) -> Sequence[str]:
    """The ids of the entries of these rows."""
    incarnation = split_key(batch.job_id)[1]
    return [entry_id(incarnation, batch.ordinal, number) for number in rows.numbers]


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


def _render(
    links: UnsubscribeLinks, mailing: MessagesOfJob, columns: Mapping[str, Sequence[str]], addresses: Sequence[Address]
) -> Sequence[Body | None]:
    """What each recipient's message says, with the recipient's own link where it has one."""
    options = mailing.options
    has_button = options.channel is Channel.MAIL and not options.transactional
    if not has_button and UNSUBSCRIBE_URL not in mailing.texts.tags:
        return mailing.texts.render(columns, len(addresses))
    known = ["" if isinstance(address, Malformed) else address for address in addresses]
    urls = links.urls_of(mailing.job.app_id, options.channel, known, options.list)
    bodies = mailing.texts.render({**columns, UNSUBSCRIBE_URL: urls}, len(addresses))
    if not has_button or not links.can_link:
        return bodies
    return [None if body is None else {**body, URL_FIELD: url} for body, url in zip(bodies, urls, strict=True)]


def _reject(prepared: Prepared, reason: Reason, detail: str, now: datetime) -> Note:
    return Note(prepared, Purpose.REJECT, at=now, reason=reason, detail=detail)
