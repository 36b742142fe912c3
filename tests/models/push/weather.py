"""Weather: which troubles a run meets, and how often."""

from random import Random

from msgspec.structs import asdict, replace

from tests.models.simulated.worlds import Troubles

_RATES = (0.003, 0.01, 0.03, 0.1)
_LENGTHS = (100, 200, 400)


class Weather(Troubles, frozen=True, kw_only=True):
    """The chance of each trouble, at each step or each choice where it may come. Troubles end after `length` choices.

    - Of a step, the reply is lost: it was `unasked` or `unanswered`, or comes `late`; more often where the name of the
      step begins with the `focus`.
    - A message is `purged`, or `doubled`: one of the last comes again.
    - Of a transaction, a record is `refused` (for good: `final`), or the marker shows late (`lag`).
    - A process `dies`, `sleeps` for long, or the broker has it `cut` off.
    - At any time there is a `hurry`, in which time passes though there is work; a user's `click`; devices that `join`.

    Of the devices, so large a share is `broken`, so that they get no record, or `poisoned`, so that nobody can read
    them. They stay so when troubles end. A world may have localized jobs (`grouped`), a service that counts what
    receivers say (`heard`), and mails about its jobs (`mailed`).

    `patience` is in seconds: how long work must stand still before upkeep takes it for lost; 0 takes all for lost. In
    `uneven` weather some processes hardly move while others run. A `small` world has one job of a few batches.
    """

    length: int = 0
    patience: float = 20.0
    uneven: bool = False
    small: bool = False
    unasked: float = 0.0
    unanswered: float = 0.0
    late: float = 0.0
    doubled: float = 0.0
    purged: float = 0.0
    refused: float = 0.0
    final: float = 0.0
    lag: float = 0.0
    dies: float = 0.0
    sleeps: float = 0.0
    cut: float = 0.0
    hurry: float = 0.0
    click: float = 0.0
    join: float = 0.0
    broken: float = 0.0
    poisoned: float = 0.0
    grouped: bool = False
    heard: bool = False
    mailed: bool = False

    @property
    def mild(self) -> bool:
        """Whether nothing comes in the way but what comes twice: then nothing is taken more often than delivered."""
        return not self._any_but("doubled") and self.patience > 0

    @property
    def orderly(self) -> bool:
        """Whether nothing is worse than slow: then no healthy lane is fenced."""
        return not self._any_but("hurry") and self.patience > 0

    @property
    def fair(self) -> bool:
        """Whether there is no trouble at all. Users and devices are free to come."""
        return not self._any_but()

    def clear_up(self) -> "Weather":
        """The same without any trouble."""
        return replace(self, **dict.fromkeys((*_TROUBLES, "click", "join"), 0.0))

    def _any_but(self, *names: str) -> bool:
        return any(getattr(self, name) for name in _TROUBLES if name not in names)


_NO_TROUBLES = {
    "length", "patience", "uneven", "small", "focus", "click", "join", "broken", "poisoned", "grouped", "heard",
    "mailed",
}  # fmt: skip
_TROUBLES = tuple(name for name in asdict(Weather()) if name not in _NO_TROUBLES)
_OFTEN = {"refused": 10, "final": 50, "lag": 10, "purged": 3}
"""What is drawn seldom, since few steps may meet it, comes more often then."""


def draw(chance: Random) -> Weather:
    """A weather of one's own for each seed: fair, with one trouble, or with many."""
    kinds = chance.choice((0, 1, 1, 2, 2, 3, 5, 8))
    rates = {name: chance.choice(_RATES) * _OFTEN.get(name, 1) for name in chance.sample(_TROUBLES, kinds)}
    return Weather(
        length=chance.choice(_LENGTHS),
        patience=chance.choice((0.0, 20.0, 20.0)) if kinds else 20.0,
        uneven=chance.random() < 0.7,
        small=chance.random() < 0.5,
        focus=chance.choice(("", "", "lane", "marker", "batches", "publish", "mail", "feedbacks", "jobs.move")),
        click=chance.choice((0.0, 0.0, 0.01, 0.03)),
        join=chance.choice((0.0, 0.02, 0.1)),
        broken=chance.choice((0.0, 0.0, 0.0, 0.1, 0.4)),
        poisoned=chance.choice((0.0, 0.0, 0.0, 0.0, 0.1)),
        grouped=chance.random() < 0.3,
        heard=chance.random() < 0.3,
        mailed=chance.random() < 0.4,
        **rates,
    )
