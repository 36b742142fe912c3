"""The API: the routes and the dashboard's pages of every subject."""

from collections.abc import Sequence

from services.api.accounts.apps import AppsResource, SigningSecretsResource
from services.api.accounts.pages.access import AccessPages, AppPages
from services.api.accounts.tokens import TokensResource
from services.api.accounts.users import SessionsResource, UsersResource, WhoamiResource
from services.api.app import Application, create
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
from services.api.clock.bulk import BulkResource
from services.api.clock.calendars import CalendarsResource
from services.api.clock.dead_letters import DeadLettersResource
from services.api.clock.limits import ScheduleLimits
from services.api.clock.moves import ScheduleMovesResource
from services.api.clock.pages.calendars import CALENDAR, CALENDARS, CalendarFormPages
from services.api.clock.pages.schedules import LETTER, LETTERS, SCHEDULE, SCHEDULES, DefinitionPages
from services.api.clock.schedules import SchedulesResource
from services.api.console.audit import AuditResource
from services.api.console.bulk_actions import BulkActionsResource, BulkDrafts
from services.api.console.letter_retries import LetterRetriesResource
from services.api.console.overview import NamespacesResource, OverviewResource
from services.api.console.pages.bulk_actions import BulkActionPages
from services.api.console.pages.overview import AuditPages, FindPages, OverviewPages, ProcessPages, SettingsPages
from services.api.console.processes import ProcessesResource, SettingsResource
from services.api.http.acts import Acts
from services.api.http.health import HealthResource
from services.api.http.identity import Directory
from services.api.http.pages.routes import PageSet
from services.api.http.pages.sessions import Visitors
from services.api.http.routes import Resource
from services.api.jobs.groups import GroupsResource
from services.api.jobs.job_draft import JobDrafts, JobFiles
from services.api.jobs.job_lists import JobListResource
from services.api.jobs.job_view import JobAnswers
from services.api.jobs.jobs import BatchesResource, JobsResource
from services.api.jobs.moves import JobMovesResource
from services.api.jobs.pages.job import GroupPages, JobPages
from services.api.jobs.pages.job_list import JobListPages
from services.api.jobs.pages.making import JobMakingPages
from services.api.jobs.pages.templates import TemplatePages
from services.api.jobs.templates import TemplatesResource, TemplateTrialResource
from services.api.jobs.uploads import PartUploadsResource, UploadsResource, UploadUrlResource
from services.api.messages.callbacks import CallbacksResource
from services.api.messages.credentials import CredentialsResource, SecretKeysResource
from services.api.messages.job_messages import JobMessagesResource, RetriesResource
from services.api.messages.message_jobs import MessageAccountJobs
from services.api.messages.messages import MessagesResource, RecipientsResource
from services.api.messages.pages.accounts import AccountPages
from services.api.messages.pages.ledger import LedgerPages, RecipientPages
from services.api.messages.recipient_counting import RecipientCounting
from services.api.messages.single_sends import SingleSendsResource
from services.api.messages.suppressions import BulkSuppressionsResource, SuppressionsResource
from services.api.messages.unsubscribing import UnsubscribeResource
from services.api.push.devices import DevicesResource
from services.api.push.preview import PreviewResource, PreviewRules, SamplesResource
from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from shared.bus.deliveries import DeliveryLookup, LoggedEvents
from shared.bus.receivers import Receivers, ReceiverTrials
from shared.clock.backfill import BackfillFlow
from shared.clock.rules.callbacks import Targets
from shared.jobs.rules.uploads import MAX_BYTES
from shared.jobs.uploads import UploadFlow
from shared.messages.barring import UnsubscribeFlow
from shared.messages.figures import CredentialFigures
from shared.messages.retention import RecipientRedaction
from shared.messages.singles import SendLimiter
from shared.runtime.http_protocol import Limits
from shared.runtime.lifecycle import Closing, Component
from shared.runtime.loops import Periodic
from shared.runtime.serving import HttpServer, affordable_connections
from shared.runtime.tls import server_context


def api_components(rooms: Rooms) -> list[Component]:
    drop = uploads(rooms).drop_abandoned
    every = rooms.servers.settings.scheduler.retention_seconds
    return [
        _ApiServer(build_api(rooms), rooms.servers),
        Closing("wake-ups due soon", rooms.bus.waker.close),
        # Here and not in schedulers: apart from processes that read files, only the API reaches S3.
        Periodic("abandoned uploads", drop, interval_seconds=every),
    ]


def build_api(rooms: Rooms) -> Application:
    """The API as an ASGI application. Raises `Invalid` for unusable settings."""
    servers = rooms.servers
    settings = servers.settings
    directory = Directory(servers.store, servers.clock, settings.api, root_key=settings.bus.root_key)
    visitors = Visitors(servers.store, directory, servers.clock)
    acts = Acts(servers.store, servers.time, settings.audit)
    return create(build_resources(rooms), build_pages(rooms), directory, visitors, acts, settings.api)


class _ApiServer(HttpServer):
    """The API, which tells this process its port, so that callbacks do not call it."""

    def __init__(self, application: Application, servers: Servers) -> None:
        settings = servers.settings.api
        limits = Limits(connections=affordable_connections(settings.max_connections))
        super().__init__(
            "api",
            application,
            host=settings.host,
            port=settings.port,
            limits=limits,
            certificate=server_context(settings.certificate_file, settings.key_file, section="api"),
            proxy_headers=False,
        )
        self._own_api = servers.own_api

    async def start(self) -> None:
        await super().start()
        self._own_api.port = self.port


def build_resources(rooms: Rooms) -> list[Resource]:
    servers = rooms.servers
    accounts = account_jobs(rooms)
    answers, drafts = JobAnswers(servers.store, rooms.jobs.watch, accounts), job_drafts(rooms, accounts)
    return [
        *_accounts(rooms),
        *_bus(rooms),
        *_clock(rooms, drafts),
        *_console(rooms),
        *_jobs(rooms, drafts, answers),
        *_messages(rooms, answers),
        *_push(rooms, drafts),
        HealthResource(servers.store, servers.audience),
    ]


def build_pages(rooms: Rooms) -> list[PageSet]:
    return [
        AppPages(),
        AccessPages(),
        SubscriptionPages(),
        DeliveryPages(),
        BusDeadLetterPages(),
        BusTopicPages(),
        SCHEDULES,
        SCHEDULE,
        DefinitionPages(),
        CALENDARS,
        CALENDAR,
        CalendarFormPages(),
        LETTERS,
        LETTER,
        OverviewPages(rooms.console.overviews.glance),
        FindPages(),
        BulkActionPages(),
        ProcessPages(rooms.servers.settings.broker),
        AuditPages(),
        SettingsPages(),
        JobMakingPages(),
        JobListPages(),
        JobPages(),
        GroupPages(),
        TemplatePages(),
        AccountPages(),
        LedgerPages(),
        RecipientPages(),
    ]


def _accounts(rooms: Rooms) -> Sequence[Resource]:
    servers = rooms.servers
    store, clock, accounts = servers.store, servers.clock, rooms.accounts
    return (
        AppsResource(store, clock, accounts.removal),
        UsersResource(store, accounts.revocations, clock, first_admin=servers.settings.api.first_admin),
        TokensResource(store, accounts.revocations, clock),
        SessionsResource(store, clock),
        SigningSecretsResource(accounts.signing),
        WhoamiResource(servers.settings.audit),
    )


def _bus(rooms: Rooms) -> Sequence[Resource]:
    servers = rooms.servers
    store, bus, settings = servers.store, rooms.bus, servers.settings.bus
    check_url = servers.check_callback_url
    receivers = Receivers(servers.bus_outgoing, servers.key_ring, servers.time)
    return (
        PublishedTopicsResource(store, bus.topics, bus.publisher, settings),
        PublishedSubscribersResource(store, bus.subscribing, bus.standings, settings, check_url=check_url),
        ApiTokensResource(store, rooms.accounts.revocations, bus.subscribing, servers.clock),
        BusTopicsResource(bus.topics),
        BusEventsResource(bus.topics, bus.publisher, settings),
        BusPressureResource(bus.pressure),
        BusSubscriptionsResource(bus.subscribing, bus.standings, settings, check_url=check_url),
        BusHealthResource(bus.subscribing, bus.standings),
        BusTrialsResource(ReceiverTrials(bus.subscribing, receivers, servers.time)),
        BusDeliveriesResource(DeliveryLookup(store, bus.subscribing, LoggedEvents(store, servers.stream))),
        BusReplaysResource(bus.replays),
        BusDeadLettersResource(bus.dead_letters),
        PulseResource([store.ping, servers.stream.ping], bus.standings, settings, servers.clock),
    )


def _clock(rooms: Rooms, drafts: JobDrafts) -> Sequence[Resource]:
    servers = rooms.servers
    store, schedules, chosen = servers.store, rooms.clock.schedules, servers.settings.callbacks
    limits = ScheduleLimits(store, drafts, servers.settings.api)
    targets = Targets(
        queues=servers.broker.delivers,
        streams=servers.stream.delivers,
        exchanges=frozenset(chosen.exchanges),
        topics=frozenset(chosen.topics),
        check_url=servers.check_callback_url,
    )
    return (
        SchedulesResource(store, schedules, targets, limits),
        ScheduleMovesResource(store, schedules, rooms.clock.anchors, BackfillFlow(store, servers.time)),
        BulkResource(store, schedules, targets, limits),
        CalendarsResource(store),
        DeadLettersResource(store, schedules),
    )


def _console(rooms: Rooms) -> Sequence[Resource]:
    servers = rooms.servers
    store, console = servers.store, rooms.console
    drafts = BulkDrafts(store, console.bulk, servers.clock)
    return (
        AuditResource(store, servers.time),
        OverviewResource(store, console.overviews, rooms.jobs.watch),
        ProcessesResource(store, servers.time, console.overviews.queues),
        SettingsResource(servers.settings),
        BulkActionsResource(store, console.bulk, drafts),
        LetterRetriesResource(store, rooms.clock.schedules, drafts),
        NamespacesResource(store),
    )


def _jobs(rooms: Rooms, drafts: JobDrafts, answers: JobAnswers) -> Sequence[Resource]:
    servers = rooms.servers
    store, clock, jobs, settings = servers.store, servers.clock, rooms.jobs, servers.settings
    most, lenient, files = settings.stream.max_record_bytes, settings.api.lenient_jobs, settings.blobs
    upload_urls = UploadUrlResource(
        servers.blobs, clock, folder=files.upload_folder, public_url=settings.api.public_url
    )
    resources = [
        TemplatesResource(store, clock, max_record_bytes=most, lenient=lenient),
        JobsResource(store, drafts, jobs.flow, jobs.groups, jobs.watch, answers),
        JobListResource(store, jobs.watch),
        JobMovesResource(store, jobs.flow, jobs.removal, answers),
        BatchesResource(store, jobs.watch),
        TemplateTrialResource(store, max_record_bytes=most, lenient=lenient),
        GroupsResource(store, jobs.groups, jobs.watch),
        PartUploadsResource(store, uploads(rooms)),
        upload_urls,
    ]
    if servers.uploads is not None:
        resources.append(UploadsResource(servers.uploads, max_file_bytes=files.max_file_bytes))
    return resources


def uploads(rooms: Rooms) -> UploadFlow:
    servers = rooms.servers
    files = servers.settings.blobs
    most = min(files.max_file_bytes, MAX_BYTES)
    return UploadFlow(servers.store, servers.blobs, servers.time, folder=files.upload_folder, max_bytes=most)


def job_drafts(rooms: Rooms, accounts: MessageAccountJobs) -> JobDrafts:
    servers = rooms.servers
    jobs, settings = rooms.jobs, servers.settings
    return JobDrafts(
        servers.store,
        servers.audience,
        JobFiles(servers.blobs, servers.audience, jobs.kinds, max_bytes=settings.blobs.max_file_bytes),
        servers.clock,
        accounts,
        published_sign=settings.api.zone_offset == "added",
        max_record_bytes=settings.stream.max_record_bytes,
        mails=jobs.has_mails,
        lenient=settings.api.lenient_jobs,
    )


def account_jobs(rooms: Rooms) -> MessageAccountJobs:
    servers = rooms.servers
    store, messages = servers.store, rooms.messages
    counting = RecipientCounting(store, lambda: messages.tables, servers.blobs)
    return MessageAccountJobs(
        store, messages.credentials, lambda: messages.tables, messages.figures, counting, messages.links
    )


def _messages(rooms: Rooms, answers: JobAnswers) -> Sequence[Resource]:
    servers = rooms.servers
    store, clock, messages, settings = servers.store, servers.clock, rooms.messages, servers.settings
    limiter = SendLimiter(store, servers.time, most_due=settings.providers.waiting_singles)
    return (
        CredentialsResource(store, messages.credentials, CredentialFigures(store), servers.key_ring, clock),
        SecretKeysResource(messages.credentials),
        JobMessagesResource(store, messages.figures),
        MessagesResource(store),
        SingleSendsResource(store, messages.singles, limiter, messages.credentials, messages.links, servers.time),
        RecipientsResource(store, RecipientRedaction(store)),
        RetriesResource(store, messages.retry, answers),
        SuppressionsResource(store, clock),
        BulkSuppressionsResource(store, clock),
        UnsubscribeResource(UnsubscribeFlow(store, messages.links, clock)),
        CallbacksResource(messages.callbacks, public_url=settings.api.public_url),
    )


def _push(rooms: Rooms, drafts: JobDrafts) -> Sequence[Resource]:
    servers = rooms.servers
    store, audience, settings = servers.store, servers.audience, servers.settings
    rules = PreviewRules(
        topic_template=settings.stream.topic_template,
        records=rooms.push.record_rules,
        published_sign=settings.api.zone_offset == "added",
        seconds=settings.api.preview_seconds,
    )
    return (
        PreviewResource(store, audience, servers.blobs, drafts, servers.clock, rules),
        SamplesResource(store, servers.clock, rules.records),
        DevicesResource(store, audience),
    )
