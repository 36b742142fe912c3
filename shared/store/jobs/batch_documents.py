"""Batches as documents. Reasons and locales of receipts are lists of pairs, because their keys are data."""

from typing import Any

from shared.domain.jobs.batches import Batch, Receipt
from shared.store.documents import Codec, Document

_codec = Codec(Batch, derived=("slot", "settled"))

END = "end"
"""The status of the entry that ends a plan."""

RECEIPT_COUNTS = ("sent", "failed", "skipped", "held_out", "unknown")
"""The counts of a receipt, which can be added up over batches."""


def document_of(batch: Batch) -> Document:
    """The document of a batch."""
    return _codec.document(batch) | {"receipt": receipt_document(batch.receipt)}


def batch_of(document: Document) -> Batch:
    """The batch of a document."""
    return _codec.value(document | {"receipt": receipt_of(document["receipt"])})


def receipt_document(receipt: Receipt) -> Document:
    """The document of a receipt."""
    counts: Document = {count: getattr(receipt, count) for count in RECEIPT_COUNTS}
    return counts | {"reasons": list(receipt.reasons.items()), "locales": list(receipt.locales.items())}


def receipt_of(document: Any) -> Receipt:
    """The receipt of a document; one of an earlier version lacks some counts."""
    counts = {count: document.get(count, 0) for count in RECEIPT_COUNTS}
    return Receipt(**counts, reasons=dict(document["reasons"]), locales=dict(document["locales"]))
