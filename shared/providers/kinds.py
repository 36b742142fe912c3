"""The kinds of providers. A new kind is a module beside this one and a line here."""

from collections.abc import Mapping

from shared.providers import ProviderKind, ProviderRules
from shared.providers.apns import ApnsKind
from shared.providers.fcm import FcmKind
from shared.providers.http import HttpKind
from shared.providers.sandbox import SandboxKind
from shared.providers.sendgrid import SendGridKind
from shared.providers.ses import SesKind
from shared.providers.smtp import SmtpKind
from shared.providers.twilio import TwilioKind


def kinds_of(rules: ProviderRules) -> Mapping[str, ProviderKind]:
    """Every kind by its name, in the order of the choice that users see."""
    kinds: tuple[ProviderKind, ...] = (
        ApnsKind(rules),
        FcmKind(rules),
        HttpKind(rules),
        SendGridKind(rules),
        SesKind(rules),
        SmtpKind(rules),
        TwilioKind(rules),
        SandboxKind(rules),
    )
    return {kind.name: kind for kind in kinds}
