"""Pacing: never above the rate as the provider sees it, whatever is late, lost or given back; and nearly all of it is
used while there is work."""

from datetime import timedelta
from functools import partial
from math import ceil
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.messages.rules.clocks import adopt, is_of_another_clock
from shared.messages.rules.pacing import (
    BEHIND_US,
    FARTHEST_US,
    Grant,
    Limit,
    Pace,
    PaceGuard,
    Wait,
    effective_rate,
    give_back,
    interval_us,
    lift,
    reserve,
    slow_down,
    width_of,
)

GUARD = PaceGuard()
SECOND = 1_000_000
CLOCK = "first"
NOW = 1_800_000_000 * SECOND

RATES = st.sampled_from([0.01, 0.5, 1, 1.5, 3, 9.9, 10, 100, 999.5, 1_000, 10_000])


def columns_of(rate: float, columns: int) -> float:
    """As many calls a second as so many columns have, and a little more."""
    interval = interval_us(rate, GUARD)
    return (columns + 0.1) * SECOND / (width_of(interval) * interval)


def take(
    pace: Pace,
    *,
    rate: float = 10,
    count: int = 1_000,
    now_us: int = NOW,
    ahead_us: int = 0,
    clock: str = CLOCK,
    first_in_line: bool = False,
    behind: bool = False,
    columns: int = 99,
    after_us: int = 0,
) -> tuple[Pace, Grant]:
    """A reservation that is granted."""
    got = reserve(
        pace,
        rate=rate,
        count=count,
        now_us=now_us,
        clock=clock,
        ahead_us=ahead_us,
        guard=GUARD,
        first_in_line=first_in_line,
        behind=behind,
        most=columns_of(rate, columns),
        after_us=after_us,
    )
    assert not isinstance(got, Wait), got
    return got


def wait(
    pace: Pace,
    *,
    rate: float = 10,
    now_us: int = NOW,
    clock: str = CLOCK,
    first_in_line: bool = False,
    behind: bool = False,
) -> Wait:
    """A reservation that is not."""
    got = reserve(
        pace,
        rate=rate,
        count=1,
        now_us=now_us,
        clock=clock,
        ahead_us=0,
        guard=GUARD,
        first_in_line=first_in_line,
        behind=behind,
    )
    assert isinstance(got, Wait), got
    return got


def test_a_grant_is_a_seconds_worth_at_most_and_evenly_spaced() -> None:
    pace, grant = take(Pace(clock=CLOCK))
    assert [grant.instant(n) - NOW for n in range(grant.count)] == [n * 102_000 for n in range(9)]
    assert (pace.seq, pace.last_us) == (1, grant.last_us)


def test_the_next_grant_goes_on_where_the_last_one_ended() -> None:
    pace, first = take(Pace(clock=CLOCK), count=3)
    _, second = take(pace)
    assert second.first_us - first.last_us == first.interval_us


def test_nothing_is_granted_far_ahead() -> None:
    pace, grant = take(Pace(clock=CLOCK))
    told = wait(pace)
    assert told.limit is Limit.RATE
    _, following = take(pace, now_us=told.until_us)
    assert following.first_us == grant.last_us + grant.interval_us


@pytest.mark.parametrize("rate", [3.0, 10.0, 500.0])
def test_who_is_first_in_line_follows_the_grant_of_others(rate: float) -> None:
    pace, others = take(Pace(clock=CLOCK), rate=rate)
    assert wait(pace, rate=rate).limit is Limit.RATE
    _, first = take(pace, rate=rate, first_in_line=True)
    assert first.first_us == others.last_us + others.interval_us
    assert first.last_us <= NOW + 2 * SECOND


def test_who_is_first_in_line_is_not_so_for_ever() -> None:
    pace, _ = take(Pace(clock=CLOCK))
    pace, ours = take(pace, first_in_line=True)
    told = wait(pace, first_in_line=True)
    assert NOW < told.until_us <= ours.last_us
    _, others = take(pace, now_us=told.until_us)
    assert others.first_us == ours.last_us + ours.interval_us


@pytest.mark.parametrize("rate", [0.5, 10.0, 30.0, 500.0, 2_500.0])
def test_who_comes_behind_asks_later_and_loses_nothing(rate: float) -> None:
    pace, first = take(Pace(clock=CLOCK), rate=rate)
    ask = partial(reserve, rate=rate, count=1_000, now_us=NOW, clock=CLOCK, ahead_us=0, guard=GUARD)
    while not isinstance(told := ask(pace), Wait):
        pace, first = told
    later = wait(pace, rate=rate, behind=True)
    assert later.until_us == told.until_us + BEHIND_US
    assert wait(pace, rate=rate, now_us=later.until_us - 1, behind=True) == later
    _, second = take(pace, rate=rate, now_us=later.until_us, ahead_us=250_000, behind=True)
    assert second.first_us == first.last_us + first.interval_us


def test_below_one_a_second_each_call_has_an_interval_of_its_own() -> None:
    pace, grant = take(Pace(clock=CLOCK), rate=0.01)
    assert grant.count == 1
    told = wait(pace, rate=0.01)
    assert told.until_us == NOW + 102 * SECOND - FARTHEST_US


def test_a_higher_rate_acts_at_once_though_little_was_allowed_before() -> None:
    pace, _ = take(Pace(clock=CLOCK), rate=0.01)
    _, grant = take(pace, rate=10)
    assert grant.first_us == NOW + 102_000


def test_what_is_written_ahead_has_its_time() -> None:
    _, grant = take(Pace(clock=CLOCK), ahead_us=250_000)
    assert grant.first_us == NOW + 250_000


def test_the_end_of_the_last_grant_can_be_given_back() -> None:
    pace, grant = take(Pace(clock=CLOCK), count=5)
    returned = give_back(pace, grant, used=2)
    assert returned is not None
    _, following = take(returned)
    assert following.first_us == grant.instant(2)


def test_a_whole_grant_can_be_given_back() -> None:
    before, first = take(Pace(clock=CLOCK), count=2)
    pace, grant = take(before, count=2)
    returned = give_back(pace, grant, used=0)
    assert returned is not None
    assert returned.last_us == first.last_us


def test_what_others_have_reserved_behind_it_is_not_given_back() -> None:
    pace, grant = take(Pace(clock=CLOCK), count=2)
    later, _ = take(pace, count=2)
    assert give_back(later, grant, used=0) is None
    assert give_back(pace, grant, used=2) is None


def test_a_process_that_reads_another_clock_gets_nothing() -> None:
    pace, _ = take(Pace(clock=CLOCK))
    assert wait(pace, clock="second").limit is Limit.CLOCK


@pytest.mark.parametrize(("rate", "pause_us"), [(10, 2_500_000), (0.5, 4_080_000)])
def test_after_a_change_of_clock_old_grants_have_time_to_end(rate: float, pause_us: int) -> None:
    pace, _ = take(Pace(clock=CLOCK), rate=rate)
    other = NOW - 3_600 * SECOND
    adopted = adopt(pace, clock="second", rate=rate, now_us=other, guard=GUARD)
    assert wait(adopted, rate=rate, now_us=other, clock="second").limit is Limit.CLOCK
    _, grant = take(adopted, rate=rate, now_us=other + pause_us, clock="second")
    assert grant.first_us == other + pause_us
    assert wait(adopted, rate=rate, clock=CLOCK).limit is Limit.CLOCK


def test_too_many_halves_the_rate_and_holds() -> None:
    pace = slow_down(Pace(clock=CLOCK), began_us=NOW - 1, now_us=NOW, retry_after=None)
    assert effective_rate(pace, 10, NOW) == 5
    told = wait(pace)
    assert (told.limit, pace.hold_until_us) == (Limit.PROVIDER, NOW + SECOND)


def test_calls_that_were_on_their_way_slow_down_no_more() -> None:
    pace = slow_down(Pace(clock=CLOCK), began_us=NOW - 5, now_us=NOW, retry_after=None)
    again = slow_down(pace, began_us=NOW - 1, now_us=NOW + 10, retry_after=timedelta(seconds=7))
    assert effective_rate(again, 10, NOW) == 5
    assert again.hold_until_us == NOW + 10 + 7 * SECOND


def test_pauses_grow_and_the_rate_keeps_a_64th() -> None:
    pace, now, pauses = Pace(clock=CLOCK), NOW, []
    for _ in range(9):
        pace = slow_down(pace, began_us=now - 1, now_us=now, retry_after=None)
        pauses.append((pace.hold_until_us - now) // SECOND)
        now = pace.hold_until_us + 2
    assert pauses[:7] == [1, 2, 4, 8, 16, 32, 60]
    assert pace.share_at(pace.slowed_us) >= 1 / 64


def test_the_rate_comes_back_by_a_tenth_every_ten_seconds() -> None:
    pace = slow_down(Pace(clock=CLOCK), began_us=NOW - 1, now_us=NOW, retry_after=None)
    shares = [pace.share_at(NOW + seconds * SECOND) for seconds in (0, 9, 10, 49, 50, 90)]
    assert shares == pytest.approx([0.5, 0.5, 0.6, 0.9, 1.0, 1.0])


def test_strikes_are_forgotten_once_the_rate_is_whole() -> None:
    pace = Pace(clock=CLOCK)
    for second in range(3):
        now = NOW + second * 100
        pace = slow_down(pace, began_us=now, now_us=now + 1, retry_after=None)
    later = NOW + 200 * SECOND
    again = slow_down(pace, began_us=later, now_us=later, retry_after=None)
    assert (again.strikes, again.hold_until_us) == (1, later + SECOND)


def crowded(arrivals: list[int], rate: float) -> str:
    """What breaks the promise in what the provider saw, or ""."""
    arrivals = sorted(arrivals)
    most, window = ceil(rate), SECOND if rate >= 1 else ceil(SECOND / rate)
    for first, last in zip(arrivals, arrivals[most:], strict=False):
        if last - first < window:
            return f"{most + 1} calls within {last - first} us"
    return ""


class Crowd:
    """Workers with one account, who do what a seed says, and what the provider sees of it, in true time."""

    def __init__(self, rate: float, seed: int, *, guard: PaceGuard = GUARD, reality: PaceGuard = GUARD) -> None:
        """`guard` is what they reckon with, `reality` what happens."""
        self.rate = rate
        self.random = Random(seed)
        self.guard = guard
        self.reality = reality
        self.pace = Pace(clock=CLOCK)
        self.clocks = {CLOCK: 0}
        self.readers = [CLOCK] * 3
        self.lags = [self.random.randint(0, reality.clock_us) for _ in self.readers]
        self.lasts = [0 for _ in self.readers]
        self.now = NOW
        self.arrivals: list[int] = []
        self.network = 50_000

    def read(self, worker: int) -> int:
        """The time by this worker's clock: never ahead of the clock that it reads."""
        return self.now + self.clocks[self.readers[worker]] - self.lags[worker]

    def step(self) -> None:
        self.now += self.random.choice([0, 1_000, 40_000, 300_000, 900_000, interval_us(self.rate, self.guard)])
        worker = self.random.randrange(len(self.readers))
        match self.random.randrange(12):
            case 0:
                self.change_clock()
            case 1:
                self.readers[worker] = list(self.clocks)[-1]
            case 2:
                began = self.read(worker)
                self.pace = slow_down(self.pace, began_us=began, now_us=began, retry_after=None)
            case _:
                self.reserve(worker)

    def change_clock(self) -> None:
        name = f"clock {len(self.clocks)}"
        self.clocks[name] = self.random.randint(-5 * SECOND, 5 * SECOND)

    def reserve(self, worker: int) -> None:
        clock, now = self.readers[worker], self.read(worker)
        if self.pace.clock != clock:
            if clock == list(self.clocks)[-1]:
                self.pace = adopt(self.pace, clock=clock, rate=self.rate, now_us=now, guard=self.guard)
            return
        got = reserve(
            self.pace,
            rate=self.rate,
            count=self.random.choice([1, 3, 1_000]),
            now_us=now,
            clock=clock,
            ahead_us=self.random.choice([0, 50_000, 250_000]),
            guard=self.guard,
            first_in_line=self.random.random() < 0.2,
            most=columns_of(self.rate, self.random.choice([1, 3, 5, 99])),
            after_us=self.lasts[worker],
        )
        elsewhere = is_of_another_clock(self.pace, clock=clock, rate=self.rate, now_us=now, guard=self.guard)
        assert not elsewhere, "the clock is the one that the pace is told by"
        if isinstance(got, Wait):
            assert got.until_us > now
            return
        self.pace, grant = got
        if self.random.random() < 0.1:
            return  # the reply is lost
        self.lasts[worker] = grant.last_us
        used = self.random.choice([grant.count, grant.count, self.random.randint(0, grant.count)])
        self.arrivals += [self.arrive(worker, grant.instant(index)) for index in range(used)]
        self.pace = give_back(self.pace, grant, used=used) or self.pace

    def arrive(self, worker: int, instant: int) -> int:
        """When the provider sees the call of this instant, as late as it may be."""
        begins = instant + self.random.choice([0, self.reality.late_us]) - self.clocks[self.readers[worker]]
        return begins + self.lags[worker] + self.network + self.random.choice([0, self.reality.network_us])


@given(RATES, st.integers(0, 2**32))
def test_the_provider_never_sees_more_than_the_rate(rate: float, seed: int) -> None:
    crowd = Crowd(rate, seed)
    for _ in range(60):
        crowd.step()
    assert not crowded(crowd.arrivals, rate)


def test_without_a_guard_it_would_see_more() -> None:
    """The property above is no empty promise."""
    crowds = [Crowd(10, seed, guard=PaceGuard(0, 0, 0)) for seed in range(30)]
    for crowd in crowds:
        for _ in range(60):
            crowd.step()
    assert any(crowded(crowd.arrivals, 10) for crowd in crowds)


@given(st.lists(st.tuples(st.sampled_from([1, 2, 10, 100]), st.integers(1, 900_000)), max_size=30))
def test_a_change_of_the_rate_never_gives_more_than_the_higher_one(steps: list[tuple[int, int]]) -> None:
    pace, now, arrivals = Pace(clock=CLOCK), NOW, []
    for rate, pause in steps:
        now += pause
        got = reserve(pace, rate=rate, count=100, now_us=now, clock=CLOCK, ahead_us=0, guard=GUARD)
        if not isinstance(got, Wait):
            pace, grant = got
            arrivals += [grant.instant(index) for index in range(grant.count)]
    assert not crowded(arrivals, 100)


@pytest.mark.parametrize("rate", [1.5, 10, 100, 500, 1_000, 10_000])
def test_98_percent_of_the_rate_can_be_used(rate: float) -> None:
    pace, now, granted = Pace(clock=CLOCK), NOW, 0
    while now < NOW + 60 * SECOND:
        got = reserve(pace, rate=rate, count=10_000, now_us=now, clock=CLOCK, ahead_us=50_000, guard=GUARD)
        if isinstance(got, Wait):
            now = got.until_us
        else:
            pace, grant = got
            granted += grant.count
    assert granted >= 0.975 * 60 * rate


def instants_of(grant: Grant) -> list[int]:
    return [grant.instant(index) for index in range(grant.count)]


def test_workers_of_a_quick_account_call_side_by_side() -> None:
    """Each has every n-th instant, and what the first two leave is the third's."""
    pace, first = take(Pace(clock=CLOCK), rate=2_500, count=40, columns=4)
    pace, second = take(pace, rate=2_500, columns=3)
    pace, third = take(pace, rate=2_500, columns=5)
    assert (first.count, second.count, third.count) == (40, 30, 10)
    assert {grant.instant(0) - NOW for grant in (first, second, third)} == {0, 408, 7 * 408}
    together = sorted(instants_of(first) + instants_of(second) + instants_of(third))
    assert [instant - NOW for instant in together] == [n * 408 for n in range(80)]
    _, following = take(pace, rate=2_500, columns=4)
    assert following.first_us == together[-1] + 408


def test_who_comes_late_has_what_is_still_ahead() -> None:
    pace, _ = take(Pace(clock=CLOCK), rate=1_000, count=40, columns=4)
    _, late = take(pace, rate=1_000, columns=4, now_us=NOW + 20_000, ahead_us=15_000)
    assert late.first_us >= NOW + 35_000
    assert late.count == 20


def test_a_worker_takes_no_instants_between_its_own() -> None:
    pace, ours = take(Pace(clock=CLOCK), rate=1_000, count=40, columns=4)
    _, following = take(pace, rate=1_000, columns=4, after_us=ours.last_us)
    assert following.first_us > ours.last_us


def test_a_younger_job_takes_nothing_that_an_older_one_has_left() -> None:
    pace, _ = take(Pace(clock=CLOCK), rate=5_000, count=200, columns=4)
    _, behind = take(pace, rate=5_000, columns=4, behind=True)
    assert behind.first_us == pace.last_us + 204


@pytest.mark.parametrize("rate", [500, 4_999, 10_000])
def test_what_is_left_of_a_block_is_not_dealt_out_at_another_rate(rate: float) -> None:
    pace, _ = take(Pace(clock=CLOCK), rate=5_000, count=400, columns=4)
    _, other = take(pace, rate=rate, columns=4)
    assert other.first_us > pace.last_us


def test_nothing_of_a_block_lies_within_a_pause() -> None:
    pace, _ = take(Pace(clock=CLOCK), rate=1_000, columns=4)
    held = replace(pace, hold_until_us=NOW + 300_000)
    _, other = take(held, rate=1_000, columns=4)
    assert NOW + 300_000 <= other.first_us < pace.last_us


def test_what_is_shared_is_not_given_back() -> None:
    pace, ours = take(Pace(clock=CLOCK), rate=5_000, count=400, columns=4)
    assert give_back(pace, ours, used=0) is None


def test_an_account_that_one_worker_keeps_up_with_has_no_blocks() -> None:
    pace, grant = take(Pace(clock=CLOCK), rate=100, columns=4)
    assert (pace.block, grant.spacing_us) == (None, interval_us(100, GUARD))


@pytest.mark.parametrize("columns", [1, 3, 4, 6])
@pytest.mark.parametrize("rate", [500, 2_500, 10_000])
def test_workers_that_use_a_part_each_use_all_of_it(rate: float, columns: int) -> None:
    workers = ceil(width_of(interval_us(rate, GUARD)) / columns)
    pace, last, granted = Pace(clock=CLOCK), [0] * workers, list[int]()
    for step in range(200):
        now = NOW + step * 50_000
        for worker in range(workers):
            while last[worker] < now + 400_000:
                got = reserve(
                    pace,
                    rate=rate,
                    count=1_000,
                    now_us=now,
                    clock=CLOCK,
                    ahead_us=100_000,
                    guard=GUARD,
                    most=columns_of(rate, columns),
                    after_us=last[worker],
                )
                if isinstance(got, Wait):
                    break
                pace, grant = got
                last[worker] = grant.last_us
                granted += instants_of(grant)
    assert len(set(granted)) == len(granted)
    assert len([each for each in granted if each < NOW + 10 * SECOND]) >= 0.95 * rate * 9.9


@pytest.mark.parametrize("rate", [50, 100, 1_000, 5_000])
def test_a_single_message_leaves_soon_beside_a_full_job(rate: float) -> None:
    """Once there was one: the median of the wait for an instant, by a job's worker that reserves as early as it may."""
    pace, now, waits = Pace(clock=CLOCK), NOW, []
    ask = partial(reserve, rate=rate, clock=CLOCK, guard=GUARD)
    for step in range(2_000):
        now += 7_000
        while not isinstance(got := ask(pace, count=1_000, now_us=now, ahead_us=80_000), Wait):
            pace = got[0]
        if step % 50 == 0:
            got = ask(pace, count=1, now_us=now, ahead_us=80_000, first_in_line=True)
            assert not isinstance(got, Wait)
            pace, grant = got
            waits.append(grant.first_us - now)
    assert sorted(waits[1:])[len(waits) // 2] <= 220_000


@pytest.mark.parametrize("rate", [0.01, 1, 7, 10_000])
def test_an_interval_is_whole_and_never_too_short(rate: float) -> None:
    assert interval_us(rate, GUARD) * rate >= SECOND + GUARD.us


def test_calls_that_were_granted_before_the_pause_are_one_piece_of_news() -> None:
    """Others' instants reach a second ahead: their calls begin behind the first refusal, and are refused too."""
    pace = slow_down(Pace(clock=CLOCK), began_us=NOW, now_us=NOW + 100_000, retry_after=None)
    for began in range(200_000, 1_000_000, 100_000):
        pace = slow_down(pace, began_us=NOW + began, now_us=NOW + began + 50_000, retry_after=None)
    assert (pace.share, pace.strikes) == (0.5, 1)
    behind = slow_down(pace, began_us=pace.hold_until_us, now_us=pace.hold_until_us + 1, retry_after=None)
    assert (behind.share, behind.strikes) == (0.25, 2)


def test_a_pause_lasts_a_second_at_least_and_a_day_at_most() -> None:
    pauses = [timedelta(0), timedelta(seconds=7), timedelta(days=400)]
    held = [slow_down(Pace(clock=CLOCK), began_us=NOW, now_us=NOW, retry_after=pause) for pause in pauses]
    assert [pace.hold_until_us - NOW for pace in held] == [SECOND, 7 * SECOND, 86_400 * SECOND]


@pytest.mark.parametrize("ahead", [-3_600, -1, 0, 1])
def test_another_clock_does_not_end_the_pause_that_a_provider_asked_for(ahead: int) -> None:
    """But none grows by it: nobody knows how long it is by a clock that is far behind, and it was not more."""
    held = slow_down(Pace(clock=CLOCK), began_us=NOW, now_us=NOW, retry_after=timedelta(hours=1))
    other = NOW + ahead * SECOND
    adopted = adopt(held, clock="second", rate=10, now_us=other, guard=GUARD)
    told = wait(adopted, now_us=other + 60 * SECOND, clock="second")
    assert told.limit is Limit.PROVIDER
    assert NOW + 3_600 * SECOND >= adopted.hold_until_us >= other + 3_598 * SECOND


def test_a_pause_that_is_over_does_not_begin_anew_by_another_clock() -> None:
    held = slow_down(Pace(clock=CLOCK), began_us=NOW, now_us=NOW, retry_after=timedelta(hours=1))
    later = NOW + 7_200 * SECOND
    adopted = adopt(held, clock="second", rate=10, now_us=later, guard=GUARD)
    take(adopted, now_us=later + 3 * SECOND, clock="second")


def is_anothers(pace: Pace, now_us: int, *, rate: float = 10) -> bool:
    return is_of_another_clock(pace, clock=CLOCK, rate=rate, now_us=now_us, guard=GUARD)


def test_instants_that_cannot_have_come_yet_are_another_clocks() -> None:
    """The clock has its name still: it was put right while nobody sent."""
    fresh = Pace(clock=CLOCK)
    ahead = NOW + 3_600 * SECOND
    told = [
        take(fresh, now_us=ahead)[0],
        adopt(replace(fresh, clock="older"), clock=CLOCK, rate=10, now_us=ahead, guard=GUARD),
        slow_down(fresh, began_us=ahead, now_us=ahead, retry_after=None),
        replace(fresh, hold_until_us=NOW + 86_500 * SECOND),
    ]
    assert [is_anothers(pace, ahead) for pace in told[:3]] == [False] * 3
    assert [is_anothers(pace, NOW) for pace in told] == [True] * 4
    for pace in told:
        adopted = adopt(pace, clock=CLOCK, rate=10, now_us=NOW, guard=GUARD)
        assert not is_anothers(adopted, NOW)


def test_who_waits_for_a_change_of_clock_goes_by_that_clock() -> None:
    """Its wait was reckoned by a share of the rate that may have come back since."""
    crowd = Crowd(0.01, 14)
    for _ in range(60):
        crowd.step()


def test_a_pause_can_be_lifted() -> None:
    held = slow_down(Pace(clock=CLOCK), began_us=NOW, now_us=NOW, retry_after=timedelta(days=1))
    assert lift(held).seq == held.seq + 1
    take(lift(held), now_us=NOW + SECOND)
    assert effective_rate(lift(held), 10, NOW) == 5
