"""What a process works on."""

import pytest

from shared.runtime import in_hand


def test_the_oldest_are_shown_first_and_gone_when_done() -> None:
    before = in_hand.held_count()
    with in_hand.hold("push.batch", "a"), in_hand.hold("push.split", "b"):
        assert in_hand.held_count() == before + 2
        assert [(held.what, held.id) for held in in_hand.oldest(100)][-2:] == [("push.batch", "a"), ("push.split", "b")]
        assert in_hand.oldest(100)[-1].seconds >= 0
        assert len(in_hand.oldest(1)) == 1
    with pytest.raises(ValueError, match="ends"), in_hand.hold("push.batch", "c"):
        raise ValueError("ends")
    assert in_hand.held_count() == before
