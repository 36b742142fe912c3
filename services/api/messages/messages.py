"""`/apps/{appId}/messages`: what became of the messages to a recipient, of one message, or of what a provider calls
so."""

from http import HTTPStatus
from typing import Annotated, Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Meta, Struct
from msgspec.structs import replace

from services.api.accounts.apps import APP, app_of
from services.api.http import paging, wire
from services.api.http.rights import OPERATE_APP, VIEW_APP, sees_personal_data
from services.api.http.routes import Parameter, Resource, Route
from services.api.messages.message_view import MessageView, message_view
from services.api.messages.recipients import address_of
from shared.domain.errors import Invalid, NotFound
from shared.domain.instants import LATEST, from_ms, ms
from shared.domain.messages.ledger import incarnation_of
from shared.domain.messages.recipients import ADDRESS_CHARACTERS, spellings_of
from shared.flow.messages.references import find_credential
from shared.store import Store
from shared.store.documents import Page
from shared.store.messages.ledger_lists import Dated

MESSAGES = APP + "/messages"
MESSAGE = MESSAGES + "/{message_id:str}"

_RECIPIENT = Parameter(
    name="recipient",
    description="An address as people write it; messages to its normal forms are found. Phone numbers begin with + "
    "and the country.",
    schema={"type": "string", "minLength": 1, "maxLength": ADDRESS_CHARACTERS},
)
_CREDENTIAL = Parameter(
    name="credential",
    description="With `providerId`: the name or the id of the credential.",
    schema={"type": "string"},
)
_PROVIDER_ID = Parameter(
    name="providerId",
    description="With `credential`, in the place of `recipient`: what the provider calls the message.",
    schema={"type": "string", "minLength": 1},
)
MESSAGE_ID = {"type": "string", "description": "The id of the message."}


RUNNING_HEADER = "x-carillon-running-jobs"
_COUNTED = 1_000


class MessagePosition(Struct, frozen=True, array_like=True):
    """The place of a message in the list of a recipient's."""

    at: Annotated[int, Meta(ge=0, le=ms(LATEST))]
    id: str


class MessagesResource(Resource):
    """The routes of single messages."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @Route(
        "GET", MESSAGES,
        summary="List the messages of an app to one `recipient`, the newest first, or find the one that a provider "
                "calls so, by `credential` and `providerId`. Messages that wait in jobs are not searched: "
                f"on the first page, the header `{RUNNING_HEADER}` counts the app's jobs of messages that have begun "
                "and have not ended.",
        who=OPERATE_APP, answers={HTTPStatus.OK: list[MessageView]}, problems=(HTTPStatus.NOT_FOUND,),
        parameters=(_RECIPIENT, _CREDENTIAL, _PROVIDER_ID), paged=True,
    )  # fmt: skip
    async def find_messages(self, request: Request[Any, Any, Any], app_id: FromPath[str]) -> Response[bytes]:
        asked, app = paging.read_page(request, MessagePosition), await app_of(self._store, app_id)
        recipient = address_of(request, _RECIPIENT.name)
        credential, provider_id = (paging.first(request, each.name) for each in (_CREDENTIAL, _PROVIDER_ID))
        _check_question(recipient, credential, provider_id)
        if recipient:
            found = await self._find_recipient(app.id, recipient, asked)
        else:
            found = await self._find_ref(app.id, credential, provider_id)
        headers = paging.links(request, asked, found, lambda dated: MessagePosition(ms(dated.at), dated.message.id))
        if asked.after is None:
            under_way = await self._store.message_jobs.count_under_way(app.id, most=_COUNTED)
            headers |= {RUNNING_HEADER: str(under_way)}
        sources = await self._store.message_jobs.sources_of({incarnation_of(dated.message.id) for dated in found})
        views = [
            message_view(dated.message, personal=True, source=sources.get(incarnation_of(dated.message.id)))
            for dated in found
        ]
        return wire.answer(views, headers=headers)

    @Route(
        "GET", MESSAGE, summary="Show a message and its last attempts.",
        who=VIEW_APP, answers={HTTPStatus.OK: MessageView}, problems=(HTTPStatus.NOT_FOUND,),
        segments={"message_id": MESSAGE_ID},
    )  # fmt: skip
    async def get_message(
        self, request: Request[Any, Any, Any], app_id: FromPath[str], message_id: FromPath[str]
    ) -> Response[bytes]:
        app, message = await app_of(self._store, app_id), await self._store.messages.get(message_id)
        if message is None or message.app_id != app.id:
            raise NotFound("the app has no message with this id", field="messageId", value=message_id)
        jobs, incarnation = self._store.message_jobs, incarnation_of(message.id)
        source = None if message.single else (await jobs.sources_of([incarnation])).get(incarnation)
        view = message_view(message, personal=sees_personal_data(request), single=True, source=source)
        if source is not None:
            view = replace(view, subject=await jobs.get_subject(incarnation, message.locale or source.locale))
        return wire.answer(view)

    async def _find_recipient(self, app_id: str, recipient: str, asked: paging.Asked[MessagePosition]) -> Page[Dated]:
        before = None if asked.after is None else (from_ms(asked.after.at), asked.after.id)
        addresses = spellings_of(recipient)
        return await self._store.message_lists.find_recipient(app_id, addresses, before=before, limit=asked.limit)

    async def _find_ref(self, app_id: str, written: str, provider_id: str) -> Page[Dated]:
        credential = await find_credential(self._store, app_id, written)
        found = await self._store.message_lists.find_ref(app_id, f"{credential.id}/{provider_id}")
        return Page(Dated(message, from_ms(0)) for message in found)


def _check_question(recipient: str, credential: str, provider_id: str) -> None:
    if bool(recipient) == bool(credential or provider_id):
        raise Invalid("either recipient is needed, or credential and providerId", field="recipient", value=recipient)
    for name, value in (("credential", credential), ("providerId", provider_id)):
        if not recipient and not value:
            raise Invalid(f"{name} is needed where no recipient is given", field=name)
