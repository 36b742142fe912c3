"""Links that sign in a browser, once.

A person who runs Carillon on a laptop has no proxy that names them, and needs no token to see the dashboard. A link is
stored like a session that has no browser yet.
"""

import secrets
from datetime import datetime, timedelta

from shared.domain.accounts.callers import secret_digest, user_namespace
from shared.domain.accounts.sessions import WebSession
from shared.store import Store

LASTS = timedelta(minutes=10)


async def make_sign_in_link(store: Store, email: str, now: datetime) -> str:
    """Make a link for this person; returns its secret. It works once, within ten minutes."""
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
