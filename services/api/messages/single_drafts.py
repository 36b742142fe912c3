"""Single messages as they are to be stored: everything that can be known to be wrong with one is told here, before
anything of it is stored."""

import asyncio
from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from services.api.messages.single_body import SingleBody, read_times
from shared.domain.accounts.apps import App
from shared.domain.audience.audiences import normal_locale
from shared.domain.errors import Invalid
from shared.domain.jobs.templates import Template, find_locale
from shared.domain.messages.channels import Channel
from shared.domain.messages.contents import content_flaw
from shared.domain.messages.credentials import Credential, check_sends
from shared.domain.messages.ledger import Message
from shared.domain.messages.phone_numbers import check_region
from shared.domain.messages.recipients import Malformed, fit_kind, read_address
from shared.domain.messages.rendering import MessageTexts
from shared.domain.messages.singles import Pending, SingleWish
from shared.domain.messages.tags import UNSUBSCRIBE_URL
from shared.domain.messages.unsubscribing import URL_FIELD, listing_of
from shared.flow.jobs.template_names import ENGLISH, find_templates
from shared.flow.messages.credentials import CredentialFlow
from shared.flow.messages.references import find_credential
from shared.flow.messages.unsubscribing import UnsubscribeLinks
from shared.store import Store

_INLINE = "body"
CONTENT_BYTES = 512 * 1024
"""The most that a message may say, as JSON."""


class SingleDraft(Struct, frozen=True):
    """A message, and what it says, as JSON."""

    message: Message
    content: str

    def with_id(self, message_id: str) -> "SingleDraft":
        """The same under this id."""
        return SingleDraft(replace(self.message, id=message_id), self.content)


class SingleDrafts:
    """Drafts the single messages of one request: what several of them name is read once."""

    def __init__(self, store: Store, credentials: CredentialFlow, links: UnsubscribeLinks, app: App) -> None:
        self._store = store
        self._credentials = credentials
        self._links = links
        self._app = app
        self._known: dict[str, Credential] = {}
        self._templates: dict[str, list[Template]] = {}

    async def draft(self, body: SingleBody, *, namespace: str, now: datetime) -> SingleDraft:
        """The message, which has no id yet. Raises `Invalid`, and `Conflict` if the credential sends nothing now."""
        times, region = read_times(body, now), check_region(body.default_region)
        credential = await self._find_credential(body.credential)
        channel = self._credentials.channel_of(credential.kind)
        address = fit_kind(read_address(body.to, channel, region), credential.kind)
        if isinstance(address, Malformed):
            raise Invalid(f"malformed address: {address.why}", field="to")
        templates = await self._find_templates(body)
        content = await asyncio.to_thread(self._render, body, templates, credential, channel, address)
        single = SingleWish(
            channel=channel,
            namespace=namespace,
            created_at=now,
            due=times.due,
            expires_at=times.expires_at,
            template=body.template,
            list=body.list,
            transactional=body.transactional,
        )
        pending = Pending(credential_id=credential.id, namespace=namespace, due=times.due)
        message = Message(
            id="",
            app_id=self._app.id,
            credential_id=credential.id,
            to=address,
            v=1,
            locale=find_locale(body.locale or ENGLISH, {normal_locale(each.locale) for each in templates}) or "",
            single=single,
            pending=pending,
        )
        return SingleDraft(message, content)

    async def _find_credential(self, written: str) -> Credential:
        if written not in self._known:
            self._known[written] = await find_credential(self._store, self._app.id, written)
        check_sends(self._known[written])
        return self._known[written]

    async def _find_templates(self, body: SingleBody) -> list[Template]:
        """The template in all its locales, or the body as one."""
        if body.body is not None:
            inline = Template(
                id="",
                app_id=self._app.id,
                name=_INLINE,
                locale=(body.locale or ENGLISH).lower(),
                body=body.body,
                created_at=0,
            )
            return [inline]
        name = body.template
        if name not in self._templates:
            self._templates[name] = await find_templates(self._store, self._app.id, (name,))
        return self._templates[name]

    def _render(
        self, body: SingleBody, templates: list[Template], credential: Credential, channel: Channel, address: str
    ) -> str:
        texts = MessageTexts(templates, body.parameters, locale=body.locale or ENGLISH)
        texts.check_filled(())
        self._credentials.check_content(credential, texts.default_template.body)
        url = self._links.url_of(listing_of(self._app.id, channel, address, body.list))
        if UNSUBSCRIBE_URL in texts.tags and not url:
            raise Invalid(
                "invalid template: {{unsubscribe_url}} needs api.public_url and providers.secret_keys", field="template"
            )
        [content] = texts.render({UNSUBSCRIBE_URL: [url]}, 1)
        if content is None:
            raise Invalid("the message would be too large", field="parameters")
        if flaw := content_flaw(content, credential):
            raise Invalid(f"the message cannot be sent with its tags filled: {flaw}", field="parameters")
        has_button = channel is Channel.MAIL and not body.transactional and url
        written = msgspec.json.encode({**content, URL_FIELD: url} if has_button else content)
        if len(written) > CONTENT_BYTES:
            raise Invalid(f"a message says {CONTENT_BYTES:,} bytes as JSON at most", field="parameters")
        return written.decode()
