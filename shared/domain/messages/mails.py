"""The mail about a credential whose login its provider refuses."""

from shared.domain.instants import ns
from shared.domain.jobs.mails import Letter, Mailing, clip, recipients, write_table
from shared.domain.messages.credentials import Credential


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
        clip(f"The provider refuses the login of the credential {credential.name} of {app_name}."),
        write_table(facts),
        "Its jobs wait, and nothing of them is lost. They go on once it has a secret that the provider takes:",
        clip(f"  carillon credentials secret {credential.name} @secret.json --app {app_name}"),
    ])  # fmt: skip
    id_ = f"credential-{credential.id}.rejected.{ns(credential.updated_at)}@{mailing.domain}"
    return Letter(id_, to, "Credential rejected by its provider", text + "\n")
