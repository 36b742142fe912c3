"""Sessions: a person's browser, after they showed a token, or opened a link that signs them in.

A session shows its token again with each request, by the digest alone. So it ends with the token: when that is revoked,
expires, or has its secret replaced. One that began by a link ends with its user.
"""

from datetime import datetime, timedelta

from msgspec import Struct

LONGEST = timedelta(hours=12)
IDLE = timedelta(hours=1)
SEEN_EVERY = timedelta(minutes=1)


class WebSession(Struct, frozen=True, kw_only=True):
    """A browser that is signed in. `id` is the SHA-256 of what its cookie holds, `token_digest` that of the token which
    was shown, or `email` names the user. `address` and `agent` tell its owner which browser this is. While it
    `is_link`, no browser has it: whoever opens the link begins the session."""

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
        """Whether it lasted too long, or nobody used it for too long."""
        return now >= self.ends_at or now >= self.seen_at + IDLE

    def is_sight_unnoted(self, now: datetime) -> bool:
        """Whether that it is used now is worth a write."""
        return now >= self.seen_at + SEEN_EVERY
