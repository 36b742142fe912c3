"""`/apps`: the apps; the namespace that a request is about; and `/signing-secrets`: a secret for each namespace, by
which receivers recognise its callbacks.
"""

from http import HTTPStatus
from typing import Annotated, Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Meta, Struct

from carillon.wire.console import SigningSecret
from services.api.http import bodies, paging, rights
from services.api.http.acts import note_change, note_name
from services.api.http.bodies import Timestamp
from services.api.http.errors import fresh_id
from services.api.http.identity import caller_of
from services.api.http.rights import ADMIN, KNOWN, OWN_APP, OWN_NAMESPACE, VIEW_APP, Of
from services.api.http.routes import Parameter, Resource, Route
from shared.accounts.removal import AppRemoval, Signing
from shared.accounts.rules.apps import EVERYWHERE, App, check_app, fold_namespace, name_key, read_namespace
from shared.core.errors import Forbidden, NotFound
from shared.core.ids import read_uuid
from shared.core.instants import format_instant
from shared.runtime.clock import Clock
from shared.store import Store

NAMESPACE = Parameter(
    name=rights.NAMESPACE,
    description="Whose: `token:<id>` or `user:<e-mail address>`; by default the caller's own. Another's needs a role.",
    schema={"type": "string", "examples": ["token:0190b5a2-0000-7000-8000-000000000000"]},
)
NAMESPACES = Parameter(
    name=rights.NAMESPACE,
    description=f"{NAMESPACE.description} `*` means all, and needs a role everywhere.",
    schema=NAMESPACE.schema,
)
CALLERS_NAMESPACE = Parameter(
    name=rights.NAMESPACE,
    description="The caller's namespace, in which things are made. Another one is refused.",
    schema=NAMESPACE.schema,
)


def namespaces_of(request: Request[Any, Any, Any]) -> str:
    """The namespace that a request looks at, `""` for all. Raises `Invalid` as `namespace_of`."""
    return "" if paging.first(request, NAMESPACE.name) == EVERYWHERE else namespace_of(request)


def namespace_of(request: Request[Any, Any, Any]) -> str:
    """The namespace that a request is about. The route's guard has seen that the caller has a role over it."""
    assert request.route_handler.opt["who"].of is Of.NAMESPACE
    named = paging.first(request, NAMESPACE.name)
    if not named:
        return caller_of(request).namespace
    return read_namespace(named, field=NAMESPACE.name)


def own_namespace(request: Request[Any, Any, Any]) -> str:
    """The caller's namespace. Raises `Forbidden` if the request names another."""
    caller, named = caller_of(request), paging.first(request, NAMESPACE.name)
    if fold_namespace(named) not in {"", caller.namespace}:
        raise Forbidden("things are made in the caller's own namespace alone", field=NAMESPACE.name, value=named)
    return caller.namespace


AppName = Annotated[
    str,
    Meta(
        description="Makes the names of the push tables and topics; unique, whatever its case. Only admins change it.",
        extra_json_schema={"pattern": "^[A-Za-z0-9_-]{1,50}$", "examples": ["mygame"]},
    ),
]
BundleId = Annotated[
    str,
    Meta(
        description="At least three lower-case labels, joined by dots; unique.",
        extra_json_schema={"pattern": "^[a-z0-9]+(\\.[a-z0-9]+){2,}$", "examples": ["com.example.mygame"]},
    ),
]
APPS = "/apps"
APP = "/apps/{app_id:str}"


class AppBody(bodies.Body, frozen=True, kw_only=True):
    """An app to be made or changed."""

    name: AppName = ""
    bundle_id: BundleId = ""


class AppView(Struct, frozen=True, kw_only=True, rename="camel"):
    """An app. Times in nanoseconds since the epoch."""

    id: str
    name: str
    bundle_id: str
    created_by: str
    created_at: int
    updated_at: int


def app_view(app: App) -> AppView:
    return AppView(
        id=app.id,
        name=app.name,
        bundle_id=app.bundle_id,
        created_by=app.created_by,
        created_at=app.created_at,
        updated_at=app.updated_at,
    )


async def app_of(store: Store, app_id: str) -> App:
    """The app that a path names. Raises `Invalid` for an id that is no UUID, and `NotFound`."""
    app = await store.apps.get(read_uuid(app_id, field="appId"))
    if app is None:
        raise NotFound("there is no app with this id", field="appId", value=app_id)
    note_name("app", app.name)
    return app


class AppsResource(Resource):
    def __init__(self, store: Store, clock: Clock, removal: AppRemoval) -> None:
        self._store = store
        self._clock = clock
        self._removal = removal

    @Route(
        "GET", APPS, summary="List the apps, the oldest first.",
        who=KNOWN, answers={HTTPStatus.OK: list[AppView]}, paged=True,
    )  # fmt: skip
    async def list_apps(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        asked = paging.read_page(request, str)
        apps = await self._store.apps.page(after=asked.after or "", limit=asked.limit)
        headers = paging.links(request, asked, apps, lambda app: app.id)
        return bodies.answer([app_view(app) for app in apps], headers=headers)

    @Route(
        "POST", APPS, summary="Make an app.",
        act="app.create", who=ADMIN,
        body=AppBody, answers={HTTPStatus.CREATED: AppView}, problems=(HTTPStatus.CONFLICT,),
    )  # fmt: skip
    async def create_app(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        body = bodies.read(await request.body(), AppBody)
        check_app(body.name, body.bundle_id)
        now = self._clock.now_ns()
        app = App(
            id=fresh_id(now),
            name=body.name,
            bundle_id=body.bundle_id,
            created_by=caller_of(request).name,
            created_at=now,
            updated_at=now,
        )
        await self._store.apps.add(app)
        note_change(None, app_view(app))
        return bodies.answer(app_view(app), HTTPStatus.CREATED)

    @Route(
        "GET", APP, summary="Show an app.",
        who=VIEW_APP, answers={HTTPStatus.OK: AppView}, problems=(HTTPStatus.NOT_FOUND,),
    )  # fmt: skip
    async def get_app(self, app_id: FromPath[str]) -> Response[bytes]:
        return bodies.answer(app_view(await app_of(self._store, app_id)))

    @Route(
        "PUT", APP,
        summary="Change an app's bundle id and, as an admin, its name. "
                "Jobs that exist keep the name they were made with.",
        act="app.update", who=OWN_APP, body=AppBody, answers={HTTPStatus.OK: AppView},
        problems=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    )  # fmt: skip
    async def update_app(self, request: Request[Any, Any, Any], app_id: FromPath[str]) -> Response[bytes]:
        body = bodies.read(await request.body(), AppBody)
        check_app(body.name, body.bundle_id)
        renames, app = caller_of(request).is_admin, await app_of(self._store, app_id)
        if not renames and name_key(body.name) != name_key(app.name):  # it decides whose devices the app's jobs reach
            raise Forbidden("only admins change an app's name", field="name", value=body.name)
        changed = await self._store.apps.update(
            app.id,
            name=body.name if renames else None,
            bundle_id=body.bundle_id,
            at=self._clock.now_ns(),
        )
        if changed is None:
            raise NotFound("there is no app with this id", field="appId", value=app_id)
        note_change(app_view(app), app_view(changed))
        return bodies.answer(app_view(changed))

    @Route(
        "DELETE", APP,
        summary="Delete an app with its templates, credentials, suppressions and jobs, if none of these is unfinished. "
                "202: secrets are deleted, and the app takes no new work. The rest is deleted in the background; until "
                "then the name cannot be reused.",
        act="app.delete", who=OWN_APP,
        answers={HTTPStatus.NO_CONTENT: None, HTTPStatus.ACCEPTED: AppView},
        problems=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    )  # fmt: skip
    async def delete_app(self, app_id: FromPath[str]) -> Response[Any]:
        app = await app_of(self._store, app_id)
        gone = await self._removal.remove(app)
        note_change(app_view(app), None)
        return bodies.empty() if gone else bodies.answer(app_view(app), HTTPStatus.ACCEPTED)


class SigningSecretsResource(Resource):
    def __init__(self, signing: Signing) -> None:
        self._signing = signing

    @Route(
        "POST", "/signing-secrets",
        summary="Give a namespace a new signing secret; the answer holds it, for this one time.",
        act="signing-secret.issue", who=OWN_NAMESPACE, answers={HTTPStatus.CREATED: SigningSecret[Timestamp]},
        problems=(HTTPStatus.CONFLICT,), parameters=(NAMESPACE,),
    )  # fmt: skip
    async def issue_signing_secret(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        issued = await self._signing.issue(namespace_of(request))
        view = SigningSecret(issued.namespace, issued.version, issued.secret, format_instant(issued.alone_from))
        return bodies.answer(view, HTTPStatus.CREATED)
