"""What a batch of a dry run would send. Nobody is called, and nothing is written but the counts of the batch."""

from collections.abc import Sequence

from msgspec.structs import replace

from services.worker.messages.entries import Note
from services.worker.messages.mailings import MessagesOfJob
from services.worker.messages.reading import RecipientRows
from services.worker.messages.screening import screen
from shared.domain.jobs.batches import Batch
from shared.domain.messages.credentials import Credential
from shared.domain.messages.ledger import Message, MessageState, reject
from shared.flow.messages.unsubscribing import UnsubscribeLinks
from shared.store import Store


async def judge_rows(
    store: Store,
    links: UnsubscribeLinks,
    mailing: MessagesOfJob,
    credential: Credential,
    batch: Batch,
    rows: RecipientRows,
) -> Sequence[Message]:
    """The entries that these rows would have if the provider took all that it is called for. Raises `Unavailable`."""
    screened = await screen(store, links, mailing, credential, batch, rows, {}, now=await store.now())
    taken = [replace(prepared.message, state=MessageState.SENT, attempt=1) for prepared in screened.prepared]
    return [*taken, *map(_rejected_entry, screened.rejected)]


def _rejected_entry(note: Note) -> Message:
    assert note.at is not None
    return reject(note.prepared.message, note.reason, at=note.at, detail=note.detail)
