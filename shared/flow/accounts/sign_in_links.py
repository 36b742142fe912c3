"""Links that sign a person's browser in, once.

A person who runs Carillon on a laptop has no proxy that names them, and need not make a token to look at the dashboard.
A link lies beside the sessions: it is one that no browser has yet.
"""

import secrets
from datetime import datetime, timedelta

from shared.domain.accounts.callers import secret_digest, user_namespace
from shared.domain.accounts.sessions import WebSession
from shared.store import Store

LASTS = timedelta(minutes=10)


async def make_sign_in_link(store: Store, email: str, now: datetime) -> str:
    """Make a link for this person: the secret that its address has. It serves once, within ten minutes. Raises
    `Unavailable`."""
    secret = secrets.token_urlsafe(32)
    link = WebSession(
        id=secret_digest(secret),
        namespace=user_namespace(email),
        email=email,
        is_link=True,
        began_at=now,
        seen_at=now,
        ends_at=now + LASTS,
    )
    await store.sessions.add(link)
    return secret
