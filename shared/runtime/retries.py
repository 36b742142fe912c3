"""When to try again: a policy as data and one pure function."""

from msgspec import Struct


class Backoff(Struct, frozen=True, kw_only=True):
    """Delays that grow by `factor` from `first_seconds` to `cap_seconds`; `jitter` is the share of each that is
    random."""

    first_seconds: float = 0.5
    factor: float = 2.0
    cap_seconds: float = 60.0
    jitter: float = 0.5


def next_delay(policy: Backoff, attempt: int, rand: float, retry_after_seconds: float | None = None) -> float:
    """Seconds to wait after failure number `attempt` (from 1), never above the cap.

    `rand` from [0, 1) takes up to `jitter` of the delay away. `retry_after_seconds` (as in HTTP's Retry-After) is a
    lower bound, and the cap limits it too.
    """
    # The exponent is limited so that a long outage does not overflow a float.
    grown = policy.first_seconds * policy.factor ** min(max(attempt, 1) - 1, 64)
    delay = min(grown, policy.cap_seconds) * (1 - policy.jitter * rand)
    return min(max(delay, retry_after_seconds or 0.0), policy.cap_seconds)
