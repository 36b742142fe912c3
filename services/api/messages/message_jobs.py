"""What jobs that send messages have of their own in the API: what POST reads and refuses, and what is shown of them."""

import asyncio
from collections.abc import Callable
from typing import Any

from services.api.jobs.account_jobs import (
    AccountFigures,
    AccountJobs,
    JobQueueView,
    MessageCountsView,
    OwnFields,
    body_with,
)
from services.api.jobs.job_body import JobBody
from services.api.messages.message_job_body import MessageJobFields, read_options, show_options
from shared.audience.recipient_tables import RecipientTables
from shared.domain.accounts.apps import App
from shared.domain.audience.audiences import table_name
from shared.domain.errors import Conflict, Invalid
from shared.domain.jobs.jobs import Job
from shared.domain.jobs.templates import Template, check_copies
from shared.domain.messages.credentials import Credential, check_sends
from shared.domain.messages.jobs import MESSAGE_SERVICE, MessageOptions, options_as_fields, options_of
from shared.domain.messages.rendering import MessageTexts
from shared.flow.messages.credentials import CredentialFlow
from shared.flow.messages.figures import MessageFigures
from shared.flow.messages.references import find_credential
from shared.store import Store


class MessageAccountJobs(AccountJobs):
    """Jobs that send messages."""

    body = body_with(MessageJobFields)

    def __init__(
        self,
        store: Store,
        credentials: CredentialFlow,
        load_tables: Callable[[], RecipientTables],
        figures: MessageFigures,
    ) -> None:
        self._store = store
        self._credentials = credentials
        self._load_tables = load_tables
        self._figures = figures

    async def read(self, app: App, names: tuple[str, ...], body: JobBody, content: bytes) -> OwnFields:
        _check_fitting(names, body)
        credential = await find_credential(self._store, app.id, body.credential)
        channel = self._credentials.channel_of(credential.kind)
        options = read_options(content, credential, channel)
        check_sends(credential)
        texts = await self._read_texts(app, names[0], body, credential, options)
        if not body.csv_path:
            table, tables = table_name(app.name, credential.kind), self._load_tables()
            await tables.check(table, body.filters, [options.recipient_column])
            texts.check_filled(await tables.columns(table))
        return OwnFields(
            service=MESSAGE_SERVICE,
            credential_id=credential.id,
            table_kind=credential.kind,
            options=options_as_fields(options),
        )

    async def confirm(self, job: Job) -> None:
        if not await self._store.credentials.note_use(job.credential_id):
            raise Conflict("the credential is being deleted", field="credential")

    async def measure(self, job: Job, *, exact: bool) -> AccountFigures:
        figures = await self._figures.measure(job, exact=exact)
        counts, forecast = figures.counts, figures.forecast
        return AccountFigures(
            messages=MessageCountsView(
                planned=counts.planned,
                unsent=counts.unsent,
                repeated=counts.repeated,
                held_out=0,
                duplicates=counts.duplicates,
                **counts.by_state,
            ),
            reasons=counts.reasons,
            queue=JobQueueView(jobs=forecast.jobs, messages=forecast.messages, starts_in=forecast.starts_in),
            ends_at=forecast.ends_at,
            options=show_options(options_of(job)),
        )

    async def _read_texts(
        self, app: App, name: str, body: JobBody, credential: Credential, options: MessageOptions
    ) -> MessageTexts:
        """The texts of the job, which the account's provider takes. Raises `Invalid`."""
        outlines = await self._store.templates.outlines(app.id, (name,))
        if not outlines:
            raise Invalid(f"the app has no template named {name!r}", field="template", value=name)
        check_copies(sum(outline.size for outline in outlines))
        templates = await self._store.templates.find_named(app.id, (name,))
        return await asyncio.to_thread(self._compile, templates, body.context, credential, options)

    def _compile(
        self, templates: list[Template], context: dict[str, Any], credential: Credential, options: MessageOptions
    ) -> MessageTexts:
        texts = MessageTexts(templates, context, locale=options.locale)
        for template in templates:
            try:
                self._credentials.check_content(credential, template.body)
            except Invalid as error:
                where = f"{template.name!r} in {template.locale!r}"
                raise Invalid(f"invalid template: {where}: {error.reason}", field="template") from None
        return texts


def _check_fitting(names: tuple[str, ...], body: JobBody) -> None:
    """Raise `Invalid` for what no job with a credential has."""
    if len(names) > 1:
        raise Invalid("a job with a credential has one template", field="template", value=",".join(names))
    if body.localized:
        raise Invalid("a job with a credential cannot be localized", field="localized", value=True)
    if body.control_group:
        reason = "a job with a credential has no control group"
        raise Invalid(reason, field="controlGroup", value=body.control_group)
    if body.metadata.get("dryRun"):
        raise Invalid("a job with a credential has no dry run", field="metadata.dryRun", value=True)
