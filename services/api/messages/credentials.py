"""`/apps/{appId}/credentials`: the provider accounts that an app sends messages by; and `/credentials/reencrypt`, the
last step but one of replacing a key of `providers.secret_keys`.
"""

from functools import partial
from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Struct
from msgspec.structs import replace

from services.api.accounts.apps import APP, app_of
from services.api.http import bodies, paging
from services.api.http.acts import note_change, note_name, reason_of
from services.api.http.errors import fresh_id
from services.api.http.identity import caller_of
from services.api.http.paging import idempotency_of
from services.api.http.rights import ADMIN, OPERATE_APP, OWN_APP, VIEW_APP, sees_personal_data
from services.api.http.routes import Parameter, Resource, Route
from services.api.messages.credential_bodies import (
    CredentialBody,
    CredentialChange,
    CredentialDetail,
    CredentialView,
    SecretBody,
    apply_change,
    body_decoder,
    change_decoder,
    credential_detail,
    credential_view,
    draft_credential,
    read_body,
    secret_decoder,
)
from shared.accounts.rules.apps import App
from shared.core.errors import Conflict, Forbidden, NotFound
from shared.core.ids import Idempotency, canonical_json, read_uuid
from shared.drivers.secrets import KeyRing
from shared.messages.credentials import CredentialFlow
from shared.messages.figures import CredentialFigures
from shared.messages.rules.credentials import Credential, CredentialStatus
from shared.runtime.clock import Clock
from shared.store import Store

CREDENTIALS = APP + "/credentials"
CREDENTIAL = CREDENTIALS + "/{credential_id:str}"
KEY = Parameter(
    name="Idempotency-Key",
    description="Kept for 24 hours. A repeated request with the same key is answered with what the first one made, and "
    "sends no other test message.",
    schema={"type": "string", "minLength": 1, "maxLength": 255},
    place="header",
)
_GONE, _TAKEN = HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT
_CREDENTIAL_ID = {"type": "string", "format": "uuid", "description": "The id of the credential."}
_route = partial(Route, answers={HTTPStatus.OK: CredentialView}, segments={"credential_id": _CREDENTIAL_ID})


class CredentialsResource(Resource):
    def __init__(
        self, store: Store, flow: CredentialFlow, figures: CredentialFigures, keys: KeyRing, clock: Clock
    ) -> None:
        self._store = store
        self._flow = flow
        self._figures = figures
        self._keys = keys
        self._clock = clock

    @_route(
        "GET", CREDENTIALS, summary="List the credentials that an app may use, its own and others', the oldest first.",
        who=VIEW_APP, answers={HTTPStatus.OK: list[CredentialView]}, problems=(_GONE,), paged=True,
    )  # fmt: skip
    async def list_credentials(self, request: Request[Any, Any, Any], app_id: FromPath[str]) -> Response[bytes]:
        asked, app = paging.read_page(request, str), await app_of(self._store, app_id)
        found = await self._store.credentials.page(app.id, after=asked.after or "", limit=asked.limit)
        headers = paging.links(request, asked, found, lambda credential: credential.id)
        return bodies.answer([_view(request, app, credential) for credential in found], headers=headers)

    @_route(
        "POST", CREDENTIALS,
        summary="Make a credential. A test message goes first: unless the provider takes it, nothing is stored.",
        act="credential.create", who=OWN_APP, body=CredentialBody,
        answers={HTTPStatus.CREATED: CredentialView, HTTPStatus.OK: CredentialView},
        problems=(_GONE, _TAKEN), parameters=(KEY,),
    )  # fmt: skip
    async def create_credential(self, request: Request[Any, Any, Any], app_id: FromPath[str]) -> Response[bytes]:
        content, app = await request.body(), await app_of(self._store, app_id)
        body = read_body(content, body_decoder)
        used = idempotency_of(request, (f"credentials of {app.id}", "", self._same(content)))
        if used is not None and (earlier := await self._find_earlier(used)):
            return bodies.answer(credential_view(earlier))
        at, channel = self._flow.now(), self._flow.channel_of(body.kind)
        id, caller = fresh_id(self._clock.now_ns()), caller_of(request)
        draft = draft_credential(body, id, app.id, channel, at=at, caller=caller)
        try:
            made = await self._flow.create(draft, body.secret, app, claim=partial(self._claim, used))
        except Conflict:
            # An equal request may have made it meanwhile, and so have taken the name.
            if used is None or (earlier := await self._find_earlier(used)) is None:
                raise
            return bodies.answer(credential_view(earlier))
        note_change(None, credential_view(made))
        return bodies.answer(credential_view(made), HTTPStatus.CREATED)

    @_route(
        "GET", CREDENTIAL, summary="Show a credential, never its secret: how it sends, and what waits for it.",
        who=VIEW_APP, answers={HTTPStatus.OK: CredentialDetail}, problems=(_GONE,),
    )  # fmt: skip
    async def get_credential(
        self, request: Request[Any, Any, Any], app_id: FromPath[str], credential_id: FromPath[str]
    ) -> Response[bytes]:
        app = await app_of(self._store, app_id)
        credential = await self._usable(app, credential_id)
        standing = await self._figures.measure(credential.id)
        return bodies.answer(credential_detail(_view(request, app, credential), standing))

    @_route(
        "PUT", CREDENTIAL,
        summary="Change a credential; what the body does not name stays. Jobs under way follow within two seconds.",
        act="credential.update", who=OWN_APP, body=CredentialChange, problems=(_GONE, _TAKEN),
    )  # fmt: skip
    async def update_credential(
        self, request: Request[Any, Any, Any], app_id: FromPath[str], credential_id: FromPath[str]
    ) -> Response[bytes]:
        body, caller = read_body(await request.body(), change_decoder), caller_of(request)
        credential = await self._own(app_id, credential_id)
        changed = await self._flow.change(credential, lambda present: apply_change(body, present, caller))
        return _answer_change(credential, changed)

    @_route(
        "DELETE", CREDENTIAL, summary="Delete a credential, unless an open job sends by it.",
        act="credential.delete", who=OWN_APP, answers={HTTPStatus.NO_CONTENT: None}, problems=(_GONE, _TAKEN),
    )  # fmt: skip
    async def delete_credential(self, app_id: FromPath[str], credential_id: FromPath[str]) -> Response[None]:
        credential = await self._own(app_id, credential_id)
        await self._flow.remove(credential)
        note_change(credential_view(credential), None)
        return bodies.empty()

    @_route(
        "PUT", CREDENTIAL + "/secret",
        summary="Give a credential another secret. A test message goes first: unless the provider takes it, the old "
                "secret stays. One that the provider had rejected sends again.",
        act="credential.replace-secret", who=OWN_APP, body=SecretBody, problems=(_GONE, _TAKEN),
    )  # fmt: skip
    async def replace_credential_secret(
        self, request: Request[Any, Any, Any], app_id: FromPath[str], credential_id: FromPath[str]
    ) -> Response[bytes]:
        body = read_body(await request.body(), secret_decoder)
        credential = await self._own(app_id, credential_id)
        fields = credential.fields if body.fields is None else body.fields
        return _answer_change(credential, await self._flow.replace_secret(credential, fields, body.secret))

    @_route(
        "POST", CREDENTIAL + "/test", summary="Send a test message by a credential, to its testRecipient.",
        act="credential.test", who=OPERATE_APP, answers={HTTPStatus.NO_CONTENT: None}, problems=(_GONE, _TAKEN),
    )  # fmt: skip
    async def test_credential(self, app_id: FromPath[str], credential_id: FromPath[str]) -> Response[None]:
        await self._flow.test(await self._own(app_id, credential_id))
        return bodies.empty()

    @_route(
        "POST", CREDENTIAL + "/suspend",
        summary="Have a credential send nothing until it is activated; its jobs wait.",
        act="credential.suspend", who=OPERATE_APP, problems=(_GONE, _TAKEN),
    )  # fmt: skip
    async def suspend_credential(
        self, request: Request[Any, Any, Any], app_id: FromPath[str], credential_id: FromPath[str]
    ) -> Response[bytes]:
        credential = await self._own(app_id, credential_id)
        moved = await self._flow.move(credential, CredentialStatus.SUSPENDED, why=reason_of(request))
        return _answer_change(credential, moved)

    @_route(
        "POST", CREDENTIAL + "/activate",
        summary="Have a credential send again, after it was suspended or the provider rejected it.",
        act="credential.activate", who=OPERATE_APP, problems=(_GONE, _TAKEN),
    )  # fmt: skip
    async def activate_credential(self, app_id: FromPath[str], credential_id: FromPath[str]) -> Response[bytes]:
        credential = await self._own(app_id, credential_id)
        return _answer_change(credential, await self._flow.move(credential, CredentialStatus.ACTIVE))

    def _same(self, content: bytes) -> bytes:
        """The bytes that replace the body in its stored digest, so that the digest does not help to guess secrets."""
        read = canonical_json(content)
        return self._keys.digest(read) if self._keys.can_seal else read

    async def _find_earlier(self, used: Idempotency) -> Credential | None:
        first = await self._store.idempotency.recall(used)
        return None if first is None else await self._store.credentials.get(first.made)

    async def _claim(self, used: Idempotency | None, draft: Credential) -> Credential:
        """The draft with the id that the first request with this key has chosen."""
        if used is None:
            return draft
        claimed = await self._store.idempotency.claim(used, made=draft.id)
        return replace(draft, id=claimed.made)

    async def _usable(self, app: App, credential_id: str) -> Credential:
        credential = await self._store.credentials.get(read_uuid(credential_id, field="credentialId"))
        if credential is None or app.id not in credential.usable_by:
            raise NotFound("there is no credential with this id", field="credentialId", value=credential_id)
        note_name("credential", credential.name)
        return credential

    async def _own(self, app_id: str, credential_id: str) -> Credential:
        """The credential, if it is the app's own. Raises `NotFound`, and `Forbidden` if another app shares it."""
        app = await app_of(self._store, app_id)
        credential = await self._usable(app, credential_id)
        if credential.app_id != app.id:
            reason = "another app owns this credential: change it in that app"
            raise Forbidden(reason, field="credentialId", value=credential_id)
        return credential


def _view(request: Request[Any, Any, Any], app: App, credential: Credential) -> CredentialView:
    return credential_view(credential, whole=credential.app_id == app.id and sees_personal_data(request))


def _answer_change(before: Credential, after: Credential) -> Response[bytes]:
    note_change(credential_view(before), credential_view(after))
    return bodies.answer(credential_view(after))


AT_ONCE = 500


class ReencryptedView(Struct, frozen=True):
    """How many secrets were encrypted anew by this request, how many are still under older keys, and how many of these
    no key opens."""

    reencrypted: int
    remaining: int
    unreadable: int


class SecretKeysResource(Resource):
    def __init__(self, flow: CredentialFlow) -> None:
        self._flow = flow

    @Route(
        "POST", "/credentials/reencrypt",
        summary=f"Encrypt up to {AT_ONCE} secrets of credentials under the first key that are under older ones. Once "
                "none remain, the older keys are needed no more.",
        act="credential.reencrypt", who=ADMIN, answers={HTTPStatus.OK: ReencryptedView},
    )  # fmt: skip
    async def reencrypt_credentials(self) -> Response[bytes]:
        done = await self._flow.reseal(most=AT_ONCE)
        return bodies.answer(ReencryptedView(done.resealed, done.remaining, done.unreadable))
