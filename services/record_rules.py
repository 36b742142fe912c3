"""How a deployment has its records written: the same for the workers that send them and for previews of the API."""

from shared.domain.push.records import RecordRules
from shared.runtime.settings import StreamSettings, WorkerSettings


def record_rules(worker: WorkerSettings, stream: StreamSettings) -> RecordRules:
    """The rules that these settings choose."""
    return RecordRules(
        push_expiry=worker.push_expiry_unit,
        time_to_live=worker.gcm_time_to_live,
        max_record_bytes=stream.max_record_bytes,
    )
