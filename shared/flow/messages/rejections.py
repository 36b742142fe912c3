"""Mails about credentials that their providers have rejected: one for each rejection.

A due mail is stored in the credential by the move itself, sent under a lease, and removed after sending. It is sent
twice only if a process dies in between, with the same Message-ID.
"""

from datetime import timedelta

import structlog

from shared.domain.errors import Invalid, Unauthorized, Unavailable
from shared.domain.jobs.mails import Mailing
from shared.domain.messages.credentials import Credential
from shared.domain.messages.mails import write_rejection
from shared.providers.mail import Mail
from shared.runtime.loops import Swept
from shared.runtime.metrics import MAILS
from shared.store import Store

log = structlog.get_logger(__name__)

INTERVAL_SECONDS = 5.0
_OLDEST = timedelta(days=1)


class RejectionMails:
    """Sends mails about rejected credentials; a mail that is a day old is dropped."""

    def __init__(self, store: Store, mail: Mail, mailing: Mailing, *, lease: timedelta) -> None:
        self._store = store
        self._mail = mail
        self._mailing = mailing
        self._lease = lease

    async def run_once(self) -> Swept:
        """Send due mails. A mail that cannot be sent now is tried again after its lease."""
        claimed = 0
        while self._mail.delivers:
            now = await self._store.now()
            credential = await self._store.credentials.lease_mail(now=now, until=now + self._lease)
            if credential is None:
                break
            claimed += 1
            if credential.is_rejected and credential.updated_at > now - _OLDEST:
                MAILS.labels(await self._deliver(credential)).inc()
            await self._store.credentials.end_mail(credential.id, until=now + self._lease)
        return Swept(claimed=claimed)

    async def _deliver(self, credential: Credential) -> str:
        app = await self._store.apps.get(credential.app_id)
        try:
            letter = write_rejection(credential, credential.app_id if app is None else app.name, self._mailing)
            if letter is None:
                return "unwanted"
            await self._mail.send(letter)
        except Invalid as error:
            log.error("mail refused", credential=credential.id, reason=str(error))
            return "refused"
        except Unauthorized as error:
            raise Unavailable(str(error)) from error
        return "sent"
