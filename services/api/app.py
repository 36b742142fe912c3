"""The API as one ASGI application: resources over the capabilities that it is given. Orchestration only.

The server in front must not rewrite the peer's address from `x-forwarded-for` (uvicorn: `proxy_headers=False`): who
may name a person is decided by the address that the connection really comes from.
"""

from typing import Any

from litestar import Litestar, Request, Response
from litestar.exceptions import MethodNotAllowedException, NotFoundException

from services.api.accounts.apps import AppsResource
from services.api.accounts.signing_secrets import SigningSecretsResource
from services.api.accounts.tokens import TokensResource
from services.api.accounts.users import UsersResource
from services.api.clock.bulk import BulkResource
from services.api.clock.dead_letters import DeadLettersResource
from services.api.clock.schedule_limits import ScheduleLimits
from services.api.clock.schedules import SchedulesResource
from services.api.http import errors
from services.api.http.bodies import Bodies
from services.api.http.documentation import DocumentationResource
from services.api.http.guards import Guarded, guard_rules
from services.api.http.health import HealthResource
from services.api.http.identity import Directory, Identified, Proxies, is_protected
from services.api.http.limits import Limited
from services.api.http.observed import Observed
from services.api.http.paging import PUBLIC_PATH, public_path
from services.api.jobs.groups import GroupsResource
from services.api.jobs.job_draft import JobDrafts
from services.api.jobs.jobs import JobsResource
from services.api.jobs.templates import TemplatesResource
from services.api.jobs.uploads import UploadsResource
from services.api.push.preview import PreviewResource, PreviewRules
from services.record_rules import record_rules
from shared.audience import Audience
from shared.blobs import Blobs, Uploads
from shared.domain.accounts.callers import check_email
from shared.domain.clock.callbacks import Targets
from shared.flow.accounts.signing import Signing
from shared.flow.clock.revocations import RevocationFlow
from shared.flow.clock.schedules import ScheduleFlow
from shared.flow.jobs.groups import GroupFlow
from shared.flow.jobs.jobs import JobFlow
from shared.runtime.clock import Clock
from shared.runtime.settings import ApiSettings, BlobSettings, StreamSettings, WorkerSettings
from shared.store import Store

_WORKER = WorkerSettings()
_STREAM = StreamSettings()
_FILES = BlobSettings()


def create(
    *,
    store: Store,
    audience: Audience,
    blobs: Blobs,
    flow: JobFlow,
    groups: GroupFlow,
    schedules: ScheduleFlow,
    targets: Targets,
    settings: ApiSettings,
    clock: Clock,
    uploads: Uploads | None = None,
    mails: bool = False,
    files: BlobSettings = _FILES,
    worker: WorkerSettings = _WORKER,
    stream: StreamSettings = _STREAM,
    signing: Signing | None = None,
) -> Litestar:
    """The application. `targets` is what callbacks may reach from this deployment, `mails` whether any are sent;
    `worker` and `stream` are what its workers make records by, `signing` what they sign callbacks by.

    Raises:
        Invalid: `settings.first_admin` is no e-mail address.
    """
    if settings.first_admin:
        check_email(settings.first_admin)
    drafts = JobDrafts(
        store,
        audience,
        blobs,
        clock,
        published_sign=settings.zone_offset == "added",
        max_file_bytes=files.max_file_bytes,
        max_record_bytes=stream.max_record_bytes,
        mails=mails,
    )
    revocations = RevocationFlow(store, schedules.now)
    limits = ScheduleLimits(store, settings)
    resources = (
        AppsResource(store, clock),
        TemplatesResource(store, clock, max_record_bytes=stream.max_record_bytes),
        JobsResource(store, drafts, flow, groups),
        PreviewResource(store, audience, blobs, drafts, clock, _preview_rules(settings, worker, stream)),
        GroupsResource(store, groups, flow),
        UploadsResource(blobs, uploads, clock, files, public_url=settings.public_url),
        SchedulesResource(store, schedules, targets, limits),
        BulkResource(store, schedules, targets, limits),
        DeadLettersResource(store, schedules),
        UsersResource(store, revocations, clock, first_admin=settings.first_admin),
        TokensResource(store, revocations, clock),
        SigningSecretsResource(signing or Signing(store, schedules.now, deployment_key="")),
        HealthResource(store, audience),
    )
    handlers = [handler for resource in resources for handler in resource.handlers()]
    app = Litestar(
        route_handlers=[*handlers, *DocumentationResource(handlers, public_url=settings.public_url).handlers()],
        exception_handlers={MethodNotAllowedException: _refuse_method, Exception: errors.refuse},
        request_max_body_size=settings.max_body_bytes,
        openapi_config=None,
        logging_config=None,
    )
    app.state[PUBLIC_PATH] = public_path(settings.public_url)
    proxies = Proxies(settings.trusted_proxies, secret=settings.proxy_secret)
    directory = Directory(store, proxies, clock, first_admin=settings.first_admin)
    bodies = Bodies(Limited(app.asgi_handler, settings), settings.max_bodies_bytes)
    app.asgi_handler = Observed(Guarded(Identified(bodies, directory), guard_rules(settings)))
    return app


def _preview_rules(api: ApiSettings, worker: WorkerSettings, stream: StreamSettings) -> PreviewRules:
    return PreviewRules(
        topic_template=stream.topic_template,
        records=record_rules(worker, stream),
        published_sign=api.zone_offset == "added",
        seconds=api.preview_seconds,
    )


def _refuse_method(request: Request[Any, Any, Any], error: MethodNotAllowedException) -> Response[bytes]:
    """Below the protected paths Marathon answers 404 to a method that it does not know."""
    return errors.refuse(request, NotFoundException() if is_protected(request.url.path) else error)
