"""Push: the kind of job whose records go to Kafka, and what the receivers say about them."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from services.api.http.routes import Resource
from services.api.push.preview import PreviewResource, PreviewRules
from services.feedback.listener import Listener
from services.parts import Check, Part
from services.parts.jobs import JobsPart
from services.worker.push.recipients import RecipientReader
from services.worker.push.send import Sender
from services.worker.stage import Stage
from shared.domain.push.records import RecordRules
from shared.flow.jobs.kinds import JobKind
from shared.flow.push.control_group import ControlGroupFile
from shared.flow.push.kind import PushKind
from shared.runtime.lifecycle import Component


class PushPart(Part):
    """Push jobs, from the API to Kafka, and their feedback."""

    processes: ClassVar[Mapping[str, str]] = {"feedback": "Run the feedback consumer."}

    @cached_property
    def record_rules(self) -> RecordRules:
        """How this deployment has its records written: the same when workers send them as when the API previews
        them."""
        return RecordRules(
            push_expiry=self.settings.worker.push_expiry_unit,
            time_to_live=self.settings.worker.gcm_time_to_live,
            max_record_bytes=self.settings.stream.max_record_bytes,
        )

    def job_kinds(self) -> Sequence[JobKind]:
        given, folder = self.capabilities, self.settings.blobs.control_group_folder
        control_group = ControlGroupFile(self.store, given.blobs, given.clock, folder=folder)
        return (PushKind(given.stream, control_group, self.settings.stream),)

    def resources(self) -> Sequence[Resource]:
        given, api = self.capabilities, self.settings.api
        rules = PreviewRules(
            topic_template=self.settings.stream.topic_template,
            records=self.record_rules,
            published_sign=api.zone_offset == "added",
            seconds=api.preview_seconds,
        )
        return (
            PreviewResource(
                self.store, given.audience, given.blobs, self.parts.of(JobsPart).drafts, given.clock, rules
            ),
        )

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
                jobs.grace,
                given.clock,
                worker=worker,
                stream_settings=self.settings.stream,
                rules=self.record_rules,
            ),
        )

    def components(self, process: str) -> Sequence[Component]:
        if process != "feedback":
            return ()
        return (Listener(self.capabilities.stream, self.store, self.settings.feedback),)

    def checks(self, process: str) -> Mapping[str, Check]:
        return {"stream": self.capabilities.stream.ping} if process in {"worker", "feedback"} else {}
