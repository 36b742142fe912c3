"""Jobs that send messages, in the API: the fields that POST reads and refuses, and those that answers have."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from services.api.http.paging import DRY_RUN_NAME
from services.api.jobs.job_body import (
    AccountFigures,
    AccountJobs,
    AccountPreview,
    Foreseen,
    JobBody,
    JobQueueView,
    MessageCountsView,
    MessageSampleView,
    OwnFields,
)
from services.api.messages.recipient_counting import Previewed, RecipientCounting
from shared.accounts.rules.apps import App
from shared.audience.rules.audiences import table_name
from shared.audience.rules.columns import check_count, column_name
from shared.core.errors import Conflict, Invalid
from shared.core.instants import ns
from shared.core.plain_words import read_mistake
from shared.drivers.postgres.recipient_tables import RecipientTables
from shared.jobs.moves import ENGLISH, find_templates
from shared.jobs.rules.jobs import Job, Plan
from shared.jobs.rules.templates import Template
from shared.messages.barring import UnsubscribeLinks
from shared.messages.credentials import CredentialFlow, find_credential
from shared.messages.figures import MessageFigures
from shared.messages.rules import places
from shared.messages.rules.answers import Channel
from shared.messages.rules.contents import RecipientCount, sample_messages, warn_of
from shared.messages.rules.credentials import Credential, OnUnknown, check_sends
from shared.messages.rules.jobs import (
    MESSAGE_SERVICE,
    Duplicates,
    Halt,
    MessageOptions,
    check_options,
    default_column,
    default_halt,
    options_as_fields,
    options_of,
)
from shared.messages.rules.recipients import check_region
from shared.messages.rules.rendering import UNSUBSCRIBE_URL, MessageTexts, check_filled_tags, find_tag
from shared.messages.rules.suppressions import check_list
from shared.store import Store


def read_options(fields: JobBody, credential: Credential, channel: Channel) -> MessageOptions:
    """The options that these fields of the body become. Raises `Invalid` for the first field that breaks a rule."""
    check_list(fields.list)
    options = MessageOptions(
        channel=channel,
        recipient_column=column_name(fields.recipient_column) or default_column(credential.kind),
        locale=fields.locale or ENGLISH,
        default_region=check_region(fields.default_region),
        duplicates=_read_choice(Duplicates, fields.duplicates, "duplicates", Duplicates.ONCE),
        on_unknown=_read_choice(OnUnknown, fields.on_unknown, "onUnknown", credential.on_unknown),
        halt=default_halt(channel) if fields.halt_on is UNSET else _read_halt(fields.halt_on),
        share=fields.share,
        list=fields.list,
        transactional=fields.transactional,
        max_recipients=fields.max_recipients,
        batch_size=places.batch_size(credential.rate),
    )
    check_options(options)
    return options


def show_options(options: MessageOptions) -> dict[str, Any]:
    halt = options.halt
    return {
        "recipientColumn": options.recipient_column,
        "locale": options.locale,
        "defaultRegion": options.default_region,
        "duplicates": options.duplicates,
        "onUnknown": options.on_unknown,
        "haltOn": None if halt is None else {"share": halt.share, "minimum": halt.minimum},
        "share": options.share,
        "list": options.list,
        "transactional": options.transactional,
        "maxRecipients": options.max_recipients,
    }


_Choice = TypeVar("_Choice", Duplicates, OnUnknown)


def _read_choice(kind: type[_Choice], written: str, field: str, default: _Choice) -> _Choice:
    try:
        return kind(written) if written else default
    except ValueError:
        rule = f"it must be {' or '.join(kind)}"
        raise Invalid(f"invalid {field}: {rule}", field=field, value=written) from None


def _read_halt(written: dict[str, Any] | UnsetType | None) -> Halt | None:
    if not isinstance(written, dict):
        return None
    try:
        return msgspec.convert(written, Halt)
    except msgspec.ValidationError as error:
        what, _ = read_mistake(str(error), Halt)
        raise Invalid(f"invalid haltOn: {what}", field="haltOn", value=written) from None


class MessageAccountJobs(AccountJobs):
    def __init__(
        self,
        store: Store,
        credentials: CredentialFlow,
        load_tables: Callable[[], RecipientTables],
        figures: MessageFigures,
        counting: RecipientCounting,
        links: UnsubscribeLinks,
    ) -> None:
        self._store = store
        self._credentials = credentials
        self._load_tables = load_tables
        self._figures = figures
        self._counting = counting
        self._links = links

    async def read(self, app: App, names: tuple[str, ...], body: JobBody) -> tuple[list[Template], OwnFields]:
        _check_fitting(names, body)
        credential = await find_credential(self._store, app.id, body.credential)
        channel = self._credentials.channel_of(credential.kind)
        options = replace(read_options(body, credential, channel), dry_run=body.metadata.get(DRY_RUN_NAME, False))
        check_sends(credential)
        templates = await find_templates(self._store, app.id, names)
        texts = await asyncio.to_thread(self._compile, templates, body.context, credential, options)
        if not body.csv_path:
            table, tables = table_name(app.name, credential.kind), self._load_tables()
            try:
                await tables.check(table, body.filters, [options.recipient_column])
            except Invalid as flaw:
                if flaw.field != "app":
                    raise
                raise Invalid(f"{flaw.reason}; give --csv FILE (csvPath), or make the table", field="app") from flaw
            texts.check_filled(await tables.columns(table))
        return templates, OwnFields(
            service=MESSAGE_SERVICE,
            credential_id=credential.id,
            table_kind=credential.kind,
            options=options_as_fields(options),
        )

    async def confirm(self, job: Job) -> None:
        if not await self._store.credentials.note_use(job.credential_id):
            raise Conflict("the credential is being deleted", field="credential")

    async def foresee(self, job: Job, *, seconds: float) -> Foreseen:
        templates = job.plan.templates
        texts = await asyncio.to_thread(MessageTexts, templates, job.context, locale=options_of(job).locale)
        credential = await find_credential(self._store, job.app_id, job.credential_id)
        try:
            counted = await self._counting.count(Previewed(job, texts, credential), seconds=seconds)
        except Invalid as flaw:
            return Foreseen(None, flaw)
        estimated = counted.estimate(counted.recipients)
        ready = replace(job, plan=Plan(end=1))
        forecast = await self._figures.foresee(ready, counted.recipients if estimated is None else estimated)
        # The columns are known once something was read.
        unfilled = texts.unfilled_tags(counted.columns) if counted.columns else ()
        samples = await asyncio.to_thread(
            sample_messages,
            templates,
            job.context,
            locale=options_of(job).locale,
            columns=counted.columns,
            first=counted.first,
        )
        preview = AccountPreview(
            exact=counted.exact,
            recipients=counted.recipients,
            estimated_recipients=estimated,
            malformed=counted.malformed,
            suppressed=counted.suppressed,
            unrendered=counted.unrendered,
            repeated=counted.repeated,
            columns=list(counted.columns),
            unfilled_tags=list(unfilled),
            samples=[MessageSampleView(locale=each.locale, bytes=each.size, content=each.content) for each in samples],
            queue=JobQueueView(jobs=forecast.jobs, messages=forecast.messages, starts_in=forecast.starts_in),
            estimated_end=0 if forecast.ends_at is None else ns(forecast.ends_at),
        )
        notices = warn_of(counted, templates, locale=options_of(job).locale)
        return Foreseen(preview, _find_flaw(job, counted, unfilled), notices)

    async def measure(self, job: Job, *, exact: bool) -> AccountFigures:
        figures = await self._figures.measure(job, exact=exact)
        counts, forecast = figures.counts, figures.forecast
        return AccountFigures(
            round=counts.round,
            messages=MessageCountsView(
                planned=counts.planned,
                unsent=counts.unsent,
                repeated=counts.repeated,
                held_out=0,
                duplicates=counts.duplicates,
                **counts.by_state,
            ),
            receipt=counts.receipt,
            queue=JobQueueView(jobs=forecast.jobs, messages=forecast.messages, starts_in=forecast.starts_in),
            ends_at=forecast.ends_at,
            options=show_options(options_of(job)),
        )

    def _compile(
        self, templates: list[Template], context: dict[str, Any], credential: Credential, options: MessageOptions
    ) -> MessageTexts:
        """The texts of the job, checked by the provider's rules. Raises `Invalid`."""
        texts = MessageTexts(templates, context, locale=options.locale)
        for template in templates:
            self._check_links(template)
            try:
                self._credentials.check_content(credential, template.body)
            except Invalid as error:
                where = f"{template.name!r} in {template.locale!r}"
                raise Invalid(f"invalid template: {where}: {error.reason}", field="template") from None
        return texts

    def _check_links(self, template: Template) -> None:
        """Raise `Invalid` for a link to unsubscribe that would be empty."""
        if missing := self._links.missing_setting:
            path = find_tag(template.body, UNSUBSCRIBE_URL)
            if path:
                where = f"{{{{{UNSUBSCRIBE_URL}}}}} in {path} of {template.name!r} in {template.locale!r}"
                raise Invalid(f"invalid template: {where}: no links are made unless {missing} is set", field="template")


def _find_flaw(job: Job, counted: RecipientCount, unfilled: tuple[str, ...]) -> Invalid | None:
    try:
        check_filled_tags(unfilled)
        check_count(counted.planned, options_of(job).max_recipients)
    except Invalid as flaw:
        return flaw
    return None


def _check_fitting(names: tuple[str, ...], body: JobBody) -> None:
    if len(names) > 1:
        raise Invalid("a job with a credential has one template", field="template", value=",".join(names))
    if body.localized:
        raise Invalid("a job with a credential cannot be localized", field="localized", value=True)
    if body.control_group:
        reason = "a job with a credential has no control group"
        raise Invalid(reason, field="controlGroup", value=body.control_group)
