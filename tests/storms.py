"""Storms: long versions of tests that go by chance, for as long as one likes, from a seed on (`make storm`)."""

import random

import pytest

SECONDS = 600.0

_drawn = pytest.StashKey[int]()


def add_options(parser: pytest.Parser) -> None:
    """What `make storm` may be given."""
    group = parser.getgroup("storm", "storms")
    group.addoption("--storm", action="store_true", help="the long versions, which judge times too")
    group.addoption("--seconds", type=float, default=SECONDS, help="how long each kind of storm may take, about")
    group.addoption("--seed", type=int, default=None, help="what chance begins with; drawn and shown by `make storm`")


def seed_of(config: pytest.Config) -> int:
    """What chance begins with: as given, or drawn once for a storm; 1 otherwise."""
    if _drawn not in config.stash:
        given: int | None = config.getoption("--seed")
        drawn = random.randrange(2**32) if config.getoption("--storm") else 1
        config.stash[_drawn] = drawn if given is None else given
    return config.stash[_drawn]


@pytest.fixture(scope="session")
def storm(pytestconfig: pytest.Config) -> bool:
    """Whether this is the long version, which judges times too."""
    return bool(pytestconfig.getoption("--storm"))


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    """What chance begins with."""
    return seed_of(pytestconfig)


@pytest.fixture(scope="session")
def storm_seconds(pytestconfig: pytest.Config) -> float:
    """How long a kind of storm may take."""
    return float(pytestconfig.getoption("--seconds"))
