"""The slowing of a pace when its provider says that calls come too fast, and the recovery."""

from datetime import timedelta

from msgspec.structs import replace

from shared.domain.messages.pacing import LONGEST_PAUSE_US, SMALLEST_SHARE, Pace

_SECOND = 1_000_000
_MICROSECOND = timedelta(microseconds=1)
_LONGEST_HOLD_US = 60 * _SECOND


def slow_down(pace: Pace, *, began_us: int, now_us: int, retry_after: timedelta | None) -> Pace:
    """The pace after the provider said that a call, which began at `began_us`, came too fast. Only a call after the
    pause shows that the pause was too short, or the rate still too high. Earlier calls were granted before the first
    refusal was known: they no longer change the share, but a longer pause of the provider's counts."""
    strikes = 0 if pace.share_at(now_us) >= 1 else pace.strikes
    is_news = began_us >= pace.hold_until_us or not strikes
    strikes += is_news
    pause_us = min(_SECOND << (strikes - 1), _LONGEST_HOLD_US) if retry_after is None else retry_after // _MICROSECOND
    pause_us = min(max(pause_us, _SECOND), LONGEST_PAUSE_US)
    held = replace(pace, seq=pace.seq + 1, hold_until_us=max(pace.hold_until_us, now_us + pause_us))
    if not is_news:
        return held
    return replace(held, share=max(pace.share_at(now_us) / 2, SMALLEST_SHARE), slowed_us=now_us, strikes=strikes)


def lift(pace: Pace) -> Pace:
    """The pace without the provider's pause, which a caller knows to be over. A slowed rate stays slowed."""
    return replace(pace, seq=pace.seq + 1, hold_until_us=0)
