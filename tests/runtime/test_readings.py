"""What metrics say without Prometheus."""

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram

from shared.runtime import readings
from shared.runtime.metrics import TASKS_IN_HAND


def test_a_counter_is_summed_by_what_its_labels_say() -> None:
    counter = Counter("doors", "Doors.", ["colour", "state"], registry=CollectorRegistry())
    counter.labels("red", "open").inc(2)
    counter.labels("red", "shut").inc(3)
    counter.labels("blue", "open").inc(4)
    assert readings.count_by(counter, lambda labels: labels["colour"]) == {"red": 5, "blue": 4}
    assert readings.count_by(counter, lambda labels: labels["state"] if labels["colour"] == "red" else "") == {
        "open": 2,
        "shut": 3,
    }
    assert readings.count(counter) == 9


def test_a_histogram_is_told_bucket_by_bucket() -> None:
    histogram = Histogram("delays", "Delays.", registry=CollectorRegistry(), buckets=(0.0025, 1.0))
    for seconds in (0.001, 0.002, 0.5, 7.0):
        histogram.observe(seconds)
    assert readings.count_buckets(histogram) == {"2500": 2, "1000000": 1, "inf": 1}


def test_a_gauge_is_read_by_its_name() -> None:
    TASKS_IN_HAND.labels("a queue").set(2)
    TASKS_IN_HAND.labels("another queue").set(3)
    try:
        assert readings.read_by_label("carillon_tasks_in_hand", "queue")["another queue"] == 3
        assert readings.read_gauge("carillon_tasks_in_hand") >= 5
        assert readings.read_memory_bytes() > 1_000_000
        assert readings.read_gauge("carillon_no_such_thing") == 0
    finally:
        TASKS_IN_HAND.remove("a queue")
        TASKS_IN_HAND.remove("another queue")


def test_the_oldest_are_shown_first_and_gone_when_done() -> None:
    before = readings.held_count()
    with readings.hold("push.batch", "a"), readings.hold("push.split", "b"):
        assert readings.held_count() == before + 2
        assert [(held.what, held.id) for held in readings.oldest(100)][-2:] == [
            ("push.batch", "a"),
            ("push.split", "b"),
        ]
        assert readings.oldest(100)[-1].seconds >= 0
        assert len(readings.oldest(1)) == 1
    with pytest.raises(ValueError, match="ends"), readings.hold("push.batch", "c"):
        raise ValueError("ends")
    assert readings.held_count() == before
