"""A job is held for what bounces or is refused, as a share of what the provider has answered."""

import pytest

from shared.messages.rules.jobs import Bounces, Halt, count_bounces, is_to_be_held

TENTH = Halt(share=0.1, minimum=10)


@pytest.mark.parametrize(
    ("tally", "counted"),
    [
        ({"sent": 99, "invalid": 11, "reasons.hard-bounce": 11}, Bounces(11, 110)),
        ({"delivered": 5, "read": 4, "failed": 3, "reasons.refused": 3}, Bounces(3, 12)),
        ({"sent": 1, "sending": 7, "unknown": 8}, Bounces(0, 1)),
        ({"sent": 1, "invalid": 9, "reasons.suppressed": 4, "reasons.unsubscribed": 5}, Bounces(0, 1)),
        ({"failed": 3, "reasons.expired": 2, "reasons.cancelled": 1}, Bounces(0, 0)),
        ({}, Bounces()),
    ],
)
def test_bounces_and_refusals_are_counted_beside_what_was_answered(tally: dict[str, int], counted: Bounces) -> None:
    assert count_bounces(tally) == counted


@pytest.mark.parametrize(
    ("bounced", "answered", "held"),
    [(11, 110, False), (11, 109, True), (10, 20, False), (200, 2_000, False), (201, 2_000, True)],
)
def test_more_than_the_share_and_the_minimum_hold_a_job(bounced: int, answered: int, held: bool) -> None:
    assert is_to_be_held(Bounces(bounced, answered), TENTH) is held
