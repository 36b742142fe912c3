"""The mail about a credential whose login its provider refuses."""

from collections.abc import Mapping

from shared.domain.instants import ns
from shared.domain.jobs.mails import Letter, Mailing, printable, recipients
from shared.domain.messages.credentials import Credential

_SHOWN_CHARACTERS = 1_000
_LABEL_WIDTH = 15


def write_rejection(credential: Credential, app_name: str, mailing: Mailing) -> Letter | None:
    """The mail about a rejected credential; `None` if it has no recipients. It shows nothing of the secret."""
    to = recipients(credential.created_by, mailing)
    if not to:
        return None
    facts = {
        "App": app_name,
        "Credential": credential.name,
        "Kind": credential.kind,
        "Provider says": credential.why,
        "Written by": mailing.host,
    }
    text = "\n\n".join([
        _clip(f"The provider refuses the login of the credential {credential.name} of {app_name}."),
        _table(facts),
        "Its jobs wait, and nothing of them is lost. They go on once it has a secret that the provider takes:",
        _clip(f"  carillon credentials secret {credential.name} @secret.json --app {app_name}"),
    ])  # fmt: skip
    id_ = f"credential-{credential.id}.rejected.{ns(credential.updated_at)}@{mailing.domain}"
    return Letter(id_, to, "Credential rejected by its provider", text + "\n")


def _table(facts: Mapping[str, str]) -> str:
    return "\n".join(f"{label + ':':<{_LABEL_WIDTH}} {_clip(value)}" for label, value in facts.items() if value)


def _clip(text: str) -> str:
    return printable(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…")
