"""Weather: which troubles a run meets, and how often."""

from random import Random

from msgspec.structs import asdict, replace

from tests.models.simulated.worlds import Troubles

_RATES = (0.003, 0.01, 0.03, 0.1)
_LENGTHS = (60, 120, 200)


class MessageWeather(Troubles, frozen=True, kw_only=True):
    """The chance of each trouble, at each step or each choice where it may come. Troubles end after `length` choices.

    - Of a step, the reply is lost: it was `unasked` or `unanswered`, or comes `late`; more often where the name of the
      step begins with the `focus`.
    - A message of the broker is `purged`, or `doubled`: one of the last comes again.
    - A process `dies`, `sleeps` for long, or the broker has it `cut` off. A `hurry` lets time pass up to the next
      timer though there is work, a `lag` some milliseconds.
    - The database has `another_clock` from now on, which tells another time.
    - The provider is `slow`, `lost` without an answer, `busy` (429) or `away` (503), `refuses` the recipient, or the
      login (`locked`). It is no trouble that it sends `news`.
    - A user's `click` comes at any time.

    `patience` is in seconds: how long work must stand still before upkeep takes it for lost. In `uneven` weather some
    processes hardly move while others run. It is fair until the jobs are planned, unless troubles come `early`. In a
    `crowded` world two jobs share an account, and have many messages. Where blocks are `shared`, workers take some
    columns of each.
    """

    length: int = 0
    patience: float = 20.0
    uneven: bool = False
    early: bool = False
    crowded: bool = False
    shared: bool = False
    news: float = 0.0
    click: float = 0.0
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
    another_clock: float = 0.0
    slow: float = 0.0
    lost: float = 0.0
    busy: float = 0.0
    away: float = 0.0
    refuses: float = 0.0
    locked: float = 0.0

    @property
    def fair(self) -> bool:
        """Whether there is no trouble at all. Users and news are free to come."""
        return not any(getattr(self, name) for name in _TROUBLES)

    def clear_up(self) -> "MessageWeather":
        """The same without any trouble."""
        return replace(self, click=0.0, **dict.fromkeys(_TROUBLES, 0.0))


_NO_TROUBLES = {"length", "patience", "uneven", "early", "crowded", "shared", "focus", "news", "click"}
_TROUBLES = tuple(name for name in asdict(MessageWeather()) if name not in _NO_TROUBLES)
_OFTEN = {"slow": 5, "lost": 5, "busy": 3, "away": 5, "refuses": 5, "purged": 3, "another_clock": 0.3}
"""What is drawn seldom, since few steps may meet it, comes more often then."""


def draw(chance: Random) -> MessageWeather:
    """A weather of one's own for each seed: fair, with one trouble, or with many."""
    kinds = chance.choice((0, 1, 2, 2, 3, 5, 8))
    rates = {name: chance.choice(_RATES) * _OFTEN.get(name, 1) for name in chance.sample(_TROUBLES, kinds)}
    return MessageWeather(
        length=chance.choice(_LENGTHS),
        patience=chance.choice((2.0, 20.0)),
        uneven=chance.random() < 0.5,
        crowded=chance.random() < 0.15,
        early=chance.random() < 0.25,
        shared=False,
        focus=chance.choice(("", "", "messages.write", "credentials.", "provider", "batches", "publish")),
        news=chance.choice((0.0, 0.03, 0.1)),
        click=chance.choice((0.0, 0.0, 0.01, 0.03)),
        **rates,
    )
