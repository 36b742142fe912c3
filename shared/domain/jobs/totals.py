"""The totals of a job's batches."""

from msgspec import Struct


class Totals(Struct, frozen=True):
    """Sums over a job's batches. Recipients are devices: planned = sent + failed + skipped + held_out + unsettled or
    dropped ones. `unknown` counts users of a file without a device."""

    batches: int = 0
    settled: int = 0
    planned: int = 0
    sent: int = 0
    failed: int = 0
    skipped: int = 0
    held_out: int = 0
    unknown: int = 0

    @property
    def done(self) -> int:
        return self.sent + self.failed + self.skipped + self.held_out
