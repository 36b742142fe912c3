"""The clock, broken on purpose: each mutant changes one thing of the product.

The mark that a scheduler sets when it has moved a claimed occurrence is no mutant: while one is claimed, a move leaves
its own mark.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from services.scheduler import fire
from shared.clock.rules import following
from shared.clock.store_occurrences import Occurrences
from shared.clock.store_outcomes import Outcomes
from shared.clock.store_schedules import Calendars, Schedules
from tests.models.clock import flaws
from tests.models.clock import test_following_meetings as meetings
from tests.models.clock.world import World


class Mutant(NamedTuple):
    """A fault: what it does, the complaint of the model, the meeting that shows it, and the changes that make it
    (target, name, other value)."""

    what: str
    complaint: str
    meeting: Callable[[World], Awaitable[None]]
    changes: Sequence[tuple[Any, str, Any]]


def _mutant(
    what: str, complaint: str, meeting: Callable[[World], Awaitable[None]], *changes: tuple[Any, str, Any]
) -> Mutant:
    return Mutant(what, complaint, meeting, changes)


MUTANTS = {
    "no moves": _mutant(
        "an offset fires although its anchor has moved",
        "is not where its anchor puts it",
        meetings.test_an_anchor_that_moves_before_its_claimed_offset_is_looked_up,
        (fire, "judge", flaws.judge_without_moves),
    ),
    "no moves of series": _mutant(
        "a series fires although a calendar has got its day",
        "is on an excluded day",
        meetings.test_a_day_that_is_added_while_its_series_is_claimed,
        (fire, "judge", flaws.judge_without_moves),
    ),
    "no days": _mutant(
        "the calendars are not read before a series fires",
        "is on an excluded day",
        meetings.test_a_day_that_is_added_while_its_series_is_claimed,
        (fire, "find_days", flaws.find_no_days),
    ),
    "blind alignment": _mutant(
        "a moved anchor takes an occurrence from its scheduler",
        "is a repeat",
        meetings.test_an_anchor_that_moves_while_an_offset_is_fired,
        (Occurrences, "align", flaws.align_what_is_claimed),
    ),
    "no mark": _mutant(
        "a move that dies half-way leaves no mark",
        "has not followed",
        meetings.test_a_move_whose_process_dies,
        (Schedules, "amend", flaws.amend_without_a_mark),
    ),
    "forgotten outcomes": _mutant(
        "an offset that comes back begins anew",
        "is a repeat",
        meetings.test_an_offset_that_has_fired_and_is_dropped_and_given_again,
        (Outcomes, "find_ended", flaws.remember_no_outcome),
    ),
    "deaf series": _mutant(
        "series do not follow a calendar that was changed",
        "has not followed",
        meetings.test_days_that_are_taken_off,
        (Calendars, "find_changed", flaws.see_no_change),
    ),
    "forgotten instants": _mutant(
        "a series does not note the instants that have fired before their turn",
        "is a repeat",
        meetings.test_a_day_that_is_taken_off_after_its_shifted_instant_has_fired,
        (following, "_pass_on", flaws.note_nothing_fired),
    ),
}
"""By their names."""
