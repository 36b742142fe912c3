"""The verdict at the end of the world: whatever was promised has come, and nothing is left over."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from shared.clock.rules.outcomes import DeadLetter, Outcome, OutcomeResult
from shared.clock.rules.schedules import Definition, MisfireMode, ScheduleState
from tests.models.clock.ledger import Attempt, Ledger
from tests.models.clock.lives import Life
from tests.models.clock.target import Answer
from tests.models.clock.world import MISFIRE_AFTER, World

DEATHS = 5  # of those who attempted a suspect; then nobody does


async def verdict(world: World) -> list[str]:
    """What is broken in a world that has been drained."""
    ledger = world.ledger
    letters, outcomes = await world.letters(), await world.outcomes()
    left = [f"{each.owner} at {each.due:%H:%M:%S.%f} is left: {each}" for each in await world.pending()]
    return [
        *ledger.broken,
        *left,
        *_unfinished(ledger),
        *_lost(world, letters, outcomes),
        *_short(world, letters, outcomes),
        *_letters(ledger, letters),
        *_outcomes(ledger, outcomes),
        *_disorder(ledger),
    ]


def _unfinished(ledger: Ledger) -> Iterator[str]:
    for key in ledger.lives:
        document = ledger.document(key)
        if document is not None and document.state is not ScheduleState.FINISHED:
            yield f"{key} is {document.state}"


def _lost(world: World, letters: Sequence[DeadLetter], outcomes: Sequence[Outcome]) -> Iterator[str]:
    ledger = world.ledger
    dead = {letter.id for letter in letters}
    skipped = {each.id.split("/")[0]: each for each in outcomes if each.result is OutcomeResult.SKIPPED}
    for key in ledger.lives:
        life = ledger.life(key)
        for id, due in () if life is None else life.dues.items():
            assert life is not None
            if id in life.taken_back:
                continue
            if id in skipped and not _may_be_skipped(life, skipped[id]):
                yield f"{key} at {due:%H:%M:%S.%f} was skipped against its rule"
            came = any(attempt.sent.answer.out for attempt in ledger.attempts[id])
            if not came and id not in skipped and id not in dead:
                yield f"{key} at {due:%H:%M:%S.%f} is lost"


def _short(world: World, letters: Sequence[DeadLetter], outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Series with calendars that have ended before they had all their instants."""
    for key in world.excluding:
        life = world.ledger.life(key)
        assert life is not None
        came = {each.sent.id for each in world.ledger.of_series(life)} | life.revived
        came |= {each.id for each in letters if life.knows(each.id, each.due)} - life.asked.keys()
        skipped = [each for each in outcomes if each.result is OutcomeResult.SKIPPED]
        came |= {each.message_id for each in skipped if life.knows(each.message_id, each.due)}
        if len(came) < (life.definition.max_occurrences or 0):
            yield f"{key} had {len(came)} of {life.definition.max_occurrences} instants"


def _may_be_skipped(life: Life, outcome: Outcome) -> bool:
    return any(_skips(content, outcome) for content in life.contents)


def _skips(content: Definition, outcome: Outcome) -> bool:
    rule, late = content.misfire, timedelta(milliseconds=outcome.late_ms)
    match rule.mode:
        case MisfireMode.FIRE:
            return False
        case MisfireMode.SKIP:
            return late > MISFIRE_AFTER
        case MisfireMode.WITHIN:
            return late > timedelta(seconds=rule.within_seconds)


def _letters(ledger: Ledger, letters: Sequence[DeadLetter]) -> Iterator[str]:
    for letter in letters:
        if _is_buried(letter):
            if ledger.unended(letter.id) < DEATHS:
                yield f"{letter.key} at {letter.due:%H:%M:%S.%f} is buried after {ledger.unended(letter.id)} deaths"
            continue
        refused = {each.sent.attempt for each in ledger.attempts[letter.id] if each.sent.answer is Answer.REFUSED}
        life = ledger.find_life(letter.key, letter.id, letter.due)
        # An offset that comes back begins anew, and may be tried less often then.
        surplus = refused if life is not None and len(life.contents) > 1 else set()
        if refused != set(range(1, letter.attempts + 1)) | surplus:
            yield f"{letter.key} at {letter.due:%H:%M:%S.%f} died after {letter.attempts} attempts, refused {refused}"


def _outcomes(ledger: Ledger, outcomes: Sequence[Outcome]) -> Iterator[str]:
    told = Counter((each.id.split("/")[0], each.attempt) for each in outcomes if not _is_buried(each))
    fired = {(each.id.split("/")[0], each.attempt) for each in outcomes if each.result is OutcomeResult.FIRED}
    answered: dict[tuple[str, int], list[Attempt]] = defaultdict(list)
    for attempts in ledger.attempts.values():
        for each in attempts:
            if each.sent.answer.told:
                answered[each.sent.id, each.sent.attempt].append(each)
    for (id, number), each_of in answered.items():
        if any(each.walk.smooth for each in each_of) and not told[id, number]:
            yield f"attempt {number} of {each_of[0].sent.key} at {each_of[0].sent.due} has no outcome"
        confirmed = any(each.walk.smooth and each.sent.answer is Answer.CONFIRMED for each in each_of)
        if confirmed and (id, number) not in fired:
            yield f"attempt {number} of {each_of[0].sent.key} at {each_of[0].sent.due} is not told as delivered"
    for (id, number), times in told.items():
        if number and times > len(answered[id, number]):
            yield f"attempt {number} of {id} has {times} outcomes and {len(answered[id, number])} answers"


def _is_buried(told: DeadLetter | Outcome) -> bool:
    """Whether it was not attempted, since it may kill whoever does."""
    return told.error.startswith("not attempted")


def _disorder(ledger: Ledger) -> Iterator[str]:
    for key, lives in ledger.lives.items():
        for life in lives:
            if life.definition.recurrence is None:
                continue
            first: dict[datetime, int] = {}
            for due, id in sorted((due, id) for id, due in life.promised.items() if id not in life.asked):
                places = [each.place for each in ledger.attempts[id]]
                if places:
                    first[due] = min(places)
            if list(first.values()) != sorted(first.values()):
                yield f"the series {key} comes out of order: {first}"
