"""The message data of an app: credentials with secrets, messages and suppressions. Messages of jobs are removed with
these."""

from shared.domain.errors import Conflict
from shared.domain.messages.credentials import CREDENTIALS_OF_AN_APP, Credential
from shared.flow.accounts.belongings import Belongings
from shared.store import Store

_AT_ONCE = 1_000


class MessageBelongings(Belongings):
    """The credentials, single messages and suppressions of apps."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def check_idle(self, app_id: str) -> None:
        after = ""
        while page := await self._store.credentials.page(app_id, after=after, limit=CREDENTIALS_OF_AN_APP):
            for credential in page:
                await self._check_waiting(credential, app_id)
            after = page[-1].id

    async def _check_waiting(self, credential: Credential, app_id: str) -> None:
        """Raise `Conflict` if messages of the app wait, or messages of another app that use the app's own
        credential."""
        whose = "" if credential.app_id == app_id else app_id
        if await self._store.singles.has_pending(credential.id, app_id=whose):
            reason = f"single messages wait to be sent by the credential {credential.name}: take them back or wait"
            raise Conflict(reason, field="appId", value=app_id)

    async def remove_at_once(self, app_id: str) -> None:
        await self._store.credentials.remove_of(app_id)

    async def remove_some(self, app_id: str) -> bool:
        if await self._store.redaction.forget_some_of(app_id, limit=_AT_ONCE):
            return True
        return await self._store.suppressions.remove_some_of(app_id, limit=_AT_ONCE) > 0
