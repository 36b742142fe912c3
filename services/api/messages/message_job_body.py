"""The fields of a job's POST that only one with a credential has."""

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from services.api.http import wire
from shared.domain.audience.column_names import column_name
from shared.domain.errors import Invalid
from shared.domain.messages import places
from shared.domain.messages.channels import Channel
from shared.domain.messages.credentials import Credential, OnUnknown
from shared.domain.messages.jobs import (
    LARGEST_SHARE,
    Duplicates,
    Halt,
    MessageOptions,
    check_options,
    default_column,
    default_halt,
)
from shared.domain.messages.phone_numbers import check_region
from shared.domain.messages.suppressions import LIST_CHARACTERS, check_list
from shared.domain.plain_words import read_mistake
from shared.flow.jobs.template_names import ENGLISH

_HALT = {
    "properties": {
        "share": {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "default": Halt().share},
        "minimum": {"type": "integer", "minimum": 0, "default": Halt().minimum},
    },
    "additionalProperties": False,
}


class MessageJobFields(wire.Body, frozen=True, kw_only=True):
    """The fields that only jobs with a credential have."""

    recipient_column: Annotated[
        str,
        Meta(
            description="With a credential: the column of the file or of the table that has the recipients. By default "
            "`recipient`, and `token` for the kinds fcm and apns.",
            extra_json_schema={"maxLength": 255},
        ),
    ] = ""
    locale: Annotated[
        str,
        Meta(
            description="With a credential: the locale of the template for recipients whose own has none. By default "
            "`en`.",
            extra_json_schema={"maxLength": 10},
        ),
    ] = ""
    default_region: Annotated[
        str,
        Meta(
            description="With a credential: the country of phone numbers that name none, by its two letters.",
            extra_json_schema={"examples": ["SG"]},
        ),
    ] = ""
    duplicates: Annotated[
        str,
        Meta(
            description="With a credential: whether who stands in the audience twice gets one message (`once`, or "
            "unset) or two (`each`).",
            extra_json_schema={"enum": ["", *Duplicates]},
        ),
    ] = ""
    on_unknown: Annotated[
        str,
        Meta(
            description="With a credential: what becomes of messages of which nobody can tell whether the provider has "
            "them: nothing (`hold`), or they are sent again (`retry`). By default as the credential says.",
            extra_json_schema={"enum": ["", *OnUnknown]},
        ),
    ] = ""
    halt_on: Annotated[
        dict[str, Any] | UnsetType | None,
        Meta(
            description="With a credential: the job is held once more than `minimum` of its messages, and more than "
            "this `share` of those that the provider has answered, bounced or were refused; `null`: never. By default "
            f"{Halt().share} and {Halt().minimum} for mail, and never for others.",
            extra_json_schema=_HALT,
        ),
    ] = UNSET
    share: Annotated[
        int,
        Meta(
            description="With a credential whose order is `shares`: how much of its rate the job gets beside others.",
            extra_json_schema={"minimum": 1, "maximum": LARGEST_SHARE},
        ),
    ] = 1
    list: Annotated[
        str,
        Meta(
            description="With a credential: the list that recipients can unsubscribe from; unset: all.",
            extra_json_schema={"maxLength": LIST_CHARACTERS},
        ),
    ] = ""
    transactional: Annotated[
        bool, Meta(description="With a credential: whether the messages go to those too who have unsubscribed.")
    ] = False
    max_recipients: Annotated[
        int,
        Meta(
            description="With a credential: a job with more recipients is stopped while it is planned; 0: no limit.",
            extra_json_schema={"minimum": 0},
        ),
    ] = 0


def read_options(fields: MessageJobFields, credential: Credential, channel: Channel) -> MessageOptions:
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
