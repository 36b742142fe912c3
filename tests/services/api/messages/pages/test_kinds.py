"""What forms ask for an account of a kind is what that kind has."""

from typing import Any, get_type_hints

import msgspec

from services.api.messages.pages.accounts import KINDS
from shared.providers import ProviderRules, apns, fcm, http, sandbox, sendgrid, ses, smtp, twilio
from shared.providers.kinds import kinds_of

SHAPES: dict[str, tuple[type[Any], type[Any] | None]] = {
    "apns": (apns.ApnsFields, apns.ApnsSecret),
    "fcm": (fcm.FcmFields, fcm.FcmSecret),
    "http": (http.HttpFields, http.HttpSecret),
    "sandbox": (sandbox.SandboxFields, None),
    "sendgrid": (sendgrid.SendGridFields, sendgrid.SendGridSecret),
    "ses": (ses.SesFields, smtp.SmtpSecret),
    "smtp": (smtp.SmtpFields, smtp.SmtpSecret),
    "twilio": (twilio.TwilioFields, twilio.TwilioSecret),
}


def test_forms_ask_for_what_each_kind_has() -> None:
    assert set(KINDS) == set(kinds_of(ProviderRules())) == set(SHAPES)
    for name, kind in kinds_of(ProviderRules()).items():
        assert KINDS[name].channel is kind.channel, name
    for name, (fields, secret) in SHAPES.items():
        for shown, shape in ((KINDS[name].fields, fields), (KINDS[name].secret, secret)):
            known = () if shape is None else msgspec.structs.fields(shape)
            assert {field.name for field in shown} == {field.encode_name for field in known}, name
            needed = {field.encode_name for field in known if field.required}
            assert needed <= {field.name for field in shown if field.needed}, name
    choices = next(field.choices for field in KINDS["smtp"].fields if field.name == "tls")
    assert [choice for choice, _ in choices] == [*get_type_hints(smtp.SmtpFields)["tls"]]
