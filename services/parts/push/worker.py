"""Push in workers: they send its batches."""

from collections.abc import Sequence
from typing import Any

from services.parts import Part
from services.parts.jobs.common import JobsPart
from services.parts.jobs.worker import JobsWorker
from services.parts.push.common import PushPart
from services.worker.consumer import Stage
from services.worker.push.recipients import RecipientReader
from services.worker.push.send import Sender


class PushWorker(Part):
    def stages(self) -> Sequence[Stage[Any]]:
        given, jobs, worker = self.capabilities, self.parts.of(JobsPart), self.settings.worker
        return (
            Sender(
                self.store,
                RecipientReader(self.store, given.audience, given.blobs, batch_size=worker.batch_size),
                given.stream,
                jobs.feed,
                jobs.flow,
                jobs.breaker,
                self.parts.of(JobsWorker).grace,
                given.clock,
                worker=worker,
                stream_settings=self.settings.stream,
                rules=self.parts.of(PushPart).record_rules,
            ),
        )
