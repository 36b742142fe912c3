"""The bus in the API's process."""

from collections.abc import Sequence

from services.api.bus.native.deliveries import BusDeadLettersResource, BusDeliveriesResource
from services.api.bus.native.health import BusHealthResource, BusPressureResource, BusTrialsResource
from services.api.bus.native.replays import BusReplaysResource
from services.api.bus.native.subscriptions import BusSubscriptionsResource
from services.api.bus.native.topics import BusEventsResource, BusTopicsResource
from services.api.bus.pages.deliveries import BusDeadLetterPages, DeliveryPages
from services.api.bus.pages.subscriptions import BusTopicPages, SubscriptionPages
from services.api.bus.routemaster.api_tokens import ApiTokensResource, PulseResource
from services.api.bus.routemaster.subscribers import PublishedSubscribersResource
from services.api.bus.routemaster.topics import PublishedTopicsResource
from services.api.http.pages.routes import PageSet
from services.api.http.routes import Resource
from services.parts import Part
from services.parts.accounts.common import AccountsPart
from services.parts.bus.common import BusPart
from shared.flow.bus.deliveries import DeliveryLookup, LoggedEvents
from shared.flow.bus.receivers import Receivers, ReceiverTrials


class BusApi(Part):
    def resources(self) -> Sequence[Resource]:
        bus, given, settings = self.parts.of(BusPart), self.capabilities, self.settings.bus
        logged = LoggedEvents(self.store, given.stream)
        receivers = Receivers(given.bus_outgoing, given.key_ring, given.time)
        return (
            PublishedTopicsResource(self.store, bus.topics, bus.publisher, settings),
            PublishedSubscribersResource(
                self.store,
                bus.subscribing,
                bus.standings,
                settings,
                check_url=given.check_callback_url,
            ),
            ApiTokensResource(self.store, self.parts.of(AccountsPart).revocations, bus.subscribing, given.clock),
            BusTopicsResource(bus.topics),
            BusEventsResource(bus.topics, bus.publisher, settings),
            BusPressureResource(bus.pressure),
            BusSubscriptionsResource(bus.subscribing, bus.standings, settings, check_url=given.check_callback_url),
            BusHealthResource(bus.subscribing, bus.standings),
            BusTrialsResource(ReceiverTrials(bus.subscribing, receivers, given.time)),
            BusDeliveriesResource(DeliveryLookup(self.store, bus.subscribing, logged)),
            BusReplaysResource(bus.replays),
            BusDeadLettersResource(bus.dead_letters),
            PulseResource([self.store.ping, given.stream.ping], bus.standings, settings, given.clock),
        )

    def pages(self) -> Sequence[PageSet]:
        return SubscriptionPages(), DeliveryPages(), BusDeadLetterPages(), BusTopicPages()
