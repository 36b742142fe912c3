"""The dry run of a batch: no provider is called, and only the counts of messages are written."""

from msgspec.structs import replace

from services.worker.messages.entries import Note
from services.worker.messages.mailings import MessagesOfJob
from services.worker.messages.reading import RecipientRows
from services.worker.messages.screening import screen
from shared.domain.jobs.batches import Batch, BatchStatus
from shared.domain.messages.batches import receipt_of_entries
from shared.domain.messages.credentials import Credential
from shared.domain.messages.ledger import Message, MessageState, add_tallies, difference, reject
from shared.flow.messages.unsubscribing import UnsubscribeLinks
from shared.store import Store


async def settle_counted(
    store: Store,
    links: UnsubscribeLinks,
    mailing: MessagesOfJob,
    credential: Credential,
    batch: Batch,
    rows: RecipientRows,
) -> Batch | None:
    """Settle a batch as if the provider accepted every call. `None` if another worker has it."""
    screened = await screen(store, links, mailing, credential, batch, rows, {}, now=await store.now())
    taken = [replace(prepared.message, state=MessageState.SENT, attempt=1) for prepared in screened.prepared]
    entries = [*taken, *map(_rejected_entry, screened.rejected)]
    return await store.message_batches.settle(
        batch,
        to=BatchStatus.SENT,
        receipt=receipt_of_entries(entries),
        size=len(rows.numbers),
        tally=add_tallies(difference(None, entry) for entry in entries),
    )


def _rejected_entry(note: Note) -> Message:
    assert note.at is not None
    return reject(note.prepared.message, note.reason, at=note.at, detail=note.detail)
