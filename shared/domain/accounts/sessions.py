"""Sessions: a person's browser, after it showed a token, or opened a link that signs in.

A session shows its token again with each request, by the digest alone. So it ends with the token: when that is revoked,
expires, or has its secret replaced. A session that began by a link ends with its user.
"""

from datetime import datetime, timedelta

from msgspec import Struct

LONGEST = timedelta(hours=12)
IDLE = timedelta(hours=1)
SEEN_EVERY = timedelta(minutes=1)


class WebSession(Struct, frozen=True, kw_only=True):
    """A signed-in browser. `id` is the SHA-256 of its cookie, `token_digest` that of its token, or `email` names the
    user. `address` and `agent` identify the browser for its owner. While it `is_link`, no browser has it: opening the
    link begins the session."""

    id: str
    namespace: str
    token_digest: str = ""
    email: str = ""
    is_link: bool = False
    began_at: datetime
    seen_at: datetime
    ends_at: datetime
    address: str = ""
    agent: str = ""

    def is_over(self, now: datetime) -> bool:
        return now >= self.ends_at or now >= self.seen_at + IDLE

    def is_sight_unnoted(self, now: datetime) -> bool:
        return now >= self.seen_at + SEEN_EVERY
