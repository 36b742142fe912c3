"""Users' names become labels, but not without end."""

from shared.runtime.metrics import BoundedLabels


def test_the_first_values_are_told_apart_and_stay_so() -> None:
    labels = BoundedLabels(2)
    assert [labels(name) for name in ("a", "b", "c", "a", "b", "d")] == ["a", "b", "other", "a", "b", "other"]
