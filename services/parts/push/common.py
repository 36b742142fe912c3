"""The part of push that several processes share."""

from collections.abc import Mapping, Sequence
from functools import cached_property

from services.parts import Check, Part
from shared.domain.push.records import RecordRules
from shared.flow.jobs.kinds import JobKind
from shared.flow.push import ControlGroupFile, PushKind


class PushPart(Part):
    @cached_property
    def record_rules(self) -> RecordRules:
        """The rules for records: the same for workers that send them and for previews of the API."""
        return RecordRules(
            push_expiry=self.settings.worker.push_expiry_unit,
            time_to_live=self.settings.worker.gcm_time_to_live,
            max_record_bytes=self.settings.stream.max_record_bytes,
        )

    def job_kinds(self) -> Sequence[JobKind]:
        given, folder = self.capabilities, self.settings.blobs.control_group_folder
        control_group = ControlGroupFile(self.store, given.blobs, given.clock, folder=folder)
        return (PushKind(given.stream, control_group, self.settings.stream),)

    def checks(self, process: str) -> Mapping[str, Check]:
        return {"stream": self.capabilities.stream.ping} if process == "feedback" else {}

    def side_checks(self, process: str) -> Mapping[str, Check]:
        return {"stream": self.capabilities.stream.ping} if process == "worker" else {}
