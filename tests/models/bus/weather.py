"""Weather: which troubles a run meets, and how often."""

from random import Random

from msgspec.structs import asdict, replace

from tests.models.simulated.worlds import Troubles

_RATES = (0.003, 0.01, 0.03, 0.1)
_LENGTHS = (150, 300, 500)
_NO_TROUBLES = {"length", "uneven", "alone", "focus", "click", "rebalance"}
_OFTEN = {"slow": 5, "lost": 5, "away": 5, "refuses": 5, "purged": 3}
"""What is drawn seldom, since few steps may meet it, comes more often then."""


class BusWeather(Troubles, frozen=True, kw_only=True):
    """The chance of each trouble, at each step or each choice where it may come. Troubles end after `length` choices.

    - Of a step, the reply is lost: it was `unasked` or `unanswered`, or comes `late`; more often where the name of the
      step begins with the `focus`.
    - A message of the broker is `purged`, or `doubled`: one of the last comes again.
    - A process `dies`, `sleeps` for long, or the broker has it `cut` off. A `hurry` lets time pass up to the next
      timer though there is work, a `lag` some milliseconds.
    - A receiver is `slow`, or hangs until the call has `lost` its patience, though it took the delivery; it is `away`,
      or `refuses` what it got.
    - A `rebalance` of partitions, and a user's `click`, come at any time.

    In `uneven` weather some processes hardly move while others run. In a world `alone` there is one of each process.
    """

    length: int = 0
    uneven: bool = False
    alone: bool = False
    click: float = 0.0
    rebalance: float = 0.0
    unasked: float = 0.0
    unanswered: float = 0.0
    late: float = 0.0
    doubled: float = 0.0
    purged: float = 0.0
    dies: float = 0.0
    sleeps: float = 0.0
    cut: float = 0.0
    hurry: float = 0.0
    lag: float = 0.0
    slow: float = 0.0
    lost: float = 0.0
    away: float = 0.0
    refuses: float = 0.0

    @property
    def fair(self) -> bool:
        """Whether there is no trouble at all. Users and rebalances are free to come."""
        return not any(getattr(self, name) for name in _TROUBLES)

    @property
    def is_punctual(self) -> bool:
        """Whether nobody stands still while time passes: then leases tell who is at work."""
        return not (self.sleeps or self.hurry or self.lag)

    def clear_up(self) -> "BusWeather":
        """The same without any trouble."""
        return replace(self, click=0.0, rebalance=0.0, **dict.fromkeys(_TROUBLES, 0.0))


_TROUBLES = tuple(name for name in asdict(BusWeather()) if name not in _NO_TROUBLES)


def draw(chance: Random) -> BusWeather:
    """A weather of one's own for each seed: fair, with one trouble, or with many."""
    kinds = chance.choice((0, 1, 2, 2, 3, 5, 8))
    rates = {name: chance.choice(_RATES) * _OFTEN.get(name, 1) for name in chance.sample(_TROUBLES, kinds)}
    return BusWeather(
        length=chance.choice(_LENGTHS),
        uneven=chance.random() < 0.5,
        alone=chance.random() < 0.2,
        focus=chance.choice(("", "", "bus_flushes", "bus_wake_ups", "bus_cuts", "bus_deliveries", "publish")),
        click=chance.choice((0.0, 0.01, 0.03)),
        rebalance=chance.choice((0.0, 0.01, 0.05)),
        **rates,
    )
