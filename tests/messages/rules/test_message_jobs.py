"""Jobs that send messages: their rules and what is usual."""

import pytest
from msgspec.structs import replace

from shared.core.errors import Invalid
from shared.messages.rules.answers import Channel
from shared.messages.rules.jobs import Halt, MessageOptions, check_options, default_column, default_halt

USUAL = MessageOptions(channel=Channel.SMS, recipient_column="recipient")


def test_what_is_usual_depends_on_the_kind() -> None:
    assert [default_column(kind) for kind in ("fcm", "apns", "smtp")] == ["token", "token", "recipient"]
    assert {channel: default_halt(channel) for channel in Channel} == {
        channel: Halt() if channel is Channel.MAIL else None for channel in Channel
    }


def test_what_is_usual_breaks_no_rule() -> None:
    check_options(USUAL)
    check_options(replace(USUAL, share=100, max_recipients=1, halt=Halt(share=1.0, minimum=0)))


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("recipientColumn", {"recipient_column": ""}),
        ("share", {"share": 0}),
        ("share", {"share": 101}),
        ("maxRecipients", {"max_recipients": -1}),
        ("maxRecipients", {"max_recipients": 10**13}),
        ("haltOn.share", {"halt": Halt(share=0.0)}),
        ("haltOn.share", {"halt": Halt(share=float("nan"))}),
        ("haltOn.minimum", {"halt": Halt(minimum=-1)}),
    ],
)
def test_the_field_that_breaks_a_rule_is_named(field: str, wrong: dict[str, object]) -> None:
    with pytest.raises(Invalid) as refused:
        check_options(replace(USUAL, **wrong))
    assert refused.value.field == field
