"""Push in the API: its routes."""

from collections.abc import Sequence

from services.api.http.routes import Resource
from services.api.push.devices import DevicesResource
from services.api.push.preview import PreviewResource, PreviewRules, SamplesResource
from services.parts import Part
from services.parts.jobs.api import JobsApi
from services.parts.push.common import PushPart


class PushApi(Part):
    def resources(self) -> Sequence[Resource]:
        given, api, drafts = self.capabilities, self.settings.api, self.parts.of(JobsApi).drafts
        rules = PreviewRules(
            topic_template=self.settings.stream.topic_template,
            records=self.parts.of(PushPart).record_rules,
            published_sign=api.zone_offset == "added",
            seconds=api.preview_seconds,
        )
        return (
            PreviewResource(self.store, given.audience, given.blobs, drafts, given.clock, rules),
            SamplesResource(self.store, given.clock, rules.records),
            DevicesResource(self.store, given.audience),
        )
