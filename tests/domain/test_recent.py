"""A memory of recent things forgets what was set the longest ago."""

from shared.domain.recent import Recent


def test_what_was_set_the_longest_ago_is_forgotten() -> None:
    recent: Recent[str, int] = Recent(2)
    recent["a"] = 1
    recent["b"] = 2
    recent["a"] = 3
    recent["c"] = 4
    assert recent == {"a": 3, "c": 4}


def test_what_is_set_by_default_counts_too() -> None:
    recent: Recent[str, list[int]] = Recent(1)
    recent.setdefault("a", []).append(1)
    recent.setdefault("b", []).append(2)
    assert recent == {"b": [2]}
