"""References to credentials in requests: the name in the app, the name in a sharing app, or the id."""

from shared.domain.errors import Invalid, suggest
from shared.domain.ids import read_uuid
from shared.domain.messages.credentials import CREDENTIALS_OF_AN_APP, Credential
from shared.store import Store

_SHOWN = 100  # characters of an unknown name


async def find_credential(store: Store, app_id: str, written: str, *, field: str = "credential") -> Credential:
    """The credential that is meant, which the app owns or may use. Raises `Invalid` if there is none, or several apps
    share one with this name."""
    found = await _find_by_id(store, app_id, written) or await store.credentials.find_named(app_id, written)
    if found is not None:
        return found
    shared = await store.credentials.find_usable(app_id, written, limit=2)
    if len(shared) > 1:
        raise Invalid("several apps share a credential with this name: give its id", field=field, value=written)
    if not shared:
        own = await store.credentials.find_own(app_id, limit=CREDENTIALS_OF_AN_APP)
        hint = suggest(written, [credential.name for credential in own])
        reason = f"the app has no credential with the name or id {written[:_SHOWN]!r}{hint}"
        raise Invalid(reason, field=field, value=written)
    return shared[0]


async def _find_by_id(store: Store, app_id: str, written: str) -> Credential | None:
    try:
        credential_id = read_uuid(written, field="credential")
    except Invalid:
        return None
    found = await store.credentials.get(credential_id)
    return found if found is not None and app_id in found.usable_by else None
