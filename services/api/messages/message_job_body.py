"""The options of a job with a credential: read from the body of its POST, and shown."""

from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from services.api.jobs.job_body import JobBody
from shared.domain.audience.column_names import column_name
from shared.domain.errors import Invalid
from shared.domain.messages import places
from shared.domain.messages.channels import Channel
from shared.domain.messages.credentials import Credential, OnUnknown
from shared.domain.messages.jobs import (
    Duplicates,
    Halt,
    MessageOptions,
    check_options,
    default_column,
    default_halt,
)
from shared.domain.messages.phone_numbers import check_region
from shared.domain.messages.suppressions import check_list
from shared.domain.plain_words import read_mistake
from shared.flow.jobs.template_names import ENGLISH


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
    """The options by the names in the body."""
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
