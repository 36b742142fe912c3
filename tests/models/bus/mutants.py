"""The protocol, broken on purpose: each mutant changes one thing of the product.

A cut that does not compare its cursor is no fault alone: the ids of its deliveries are taken by then, and its chunks
are gone ("cut without cursor" takes all three away). A settlement that does not compare its cursor is not found yet.
"""

from services.feedback.fan_out import FanOut
from services.worker.bus.queue_run import QueueCalls
from shared.bus import store_cuts as cuts
from shared.bus import subscriptions
from shared.bus.flushing import LogFlusher, UnwokenUpkeep
from shared.bus.rules import cutting
from shared.bus.rules.deliveries import CallResult
from shared.bus.rules.subscriptions import OPEN_DELIVERIES, EventSubscription, SubscriptionStatus
from shared.bus.store_cuts import BusCuts
from shared.bus.store_log import BusFlushes
from shared.bus.store_wake_ups import WakeUps
from tests.models.bus import flaws
from tests.models.bus.promise import Promise
from tests.models.bus.weather import BusWeather
from tests.models.bus.world import World
from tests.models.simulated.worlds import mutants_of

_mutant = mutants_of(World, Promise)
_FAIR = BusWeather(length=150)
_REBALANCES = BusWeather(length=500, uneven=True, rebalance=0.1, sleeps=0.05)
_LATE_CUTS = BusWeather(length=400, uneven=True, late=0.03, sleeps=0.05, focus="bus_cuts.cut")
_CLICKS = BusWeather(length=400, uneven=True, click=0.06)
_DEATHS = BusWeather(length=300, dies=0.05)
_LOSSES = BusWeather(length=300, unanswered=0.03, unasked=0.05, late=0.03, focus="bus_wake_ups")
_DOUBLES = BusWeather(length=300, uneven=True, doubled=0.1, slow=0.5)
_REFUSALS = BusWeather(length=300, refuses=0.3)

MUTANTS = {
    "no fence of positions": _mutant(
        "a flush moves positions wherever they stand",
        "TWICE BACKWARDS MISSED UNWANTED COUNTED",
        (BusFlushes, "_move", flaws.move_blindly),
        seed=1,
        weather=_REBALANCES,
    ),
    "no rewind": _mutant(
        "who has lost a fold reads on where it was",
        "MISSED TWICE BACKWARDS",
        (FanOut, "_discard", flaws.rewind_nothing),
        seed=13,
        weather=_REBALANCES,
    ),
    "old registry": _mutant(
        "a flush is stored whatever has changed since it was folded",
        "MISSED UNWANTED",
        (BusFlushes, "flush", flaws.flush_whatever_changed),
        weather=_CLICKS,
    ),
    "left at once": _mutant(
        "a topic is left for events that were accepted before, too",
        "MISSED",
        (subscriptions, "topics_chosen_anew", lambda _before, _after: ()),
        weather=_CLICKS,
    ),
    "idle paused ones": _mutant(
        "a paused subscription collects nothing",
        "MISSED",
        (EventSubscription, "collects", property(lambda found: found.state is SubscriptionStatus.ACTIVE)),
        weather=_CLICKS,
    ),
    "forgotten before woken": _mutant(
        "a flush counts as woken before its queues are",
        "NEVER",
        (LogFlusher, "_wake_all", flaws.forget_and_wake),
        seed=2,
        weather=_LOSSES,
    ),
    "no upkeep": _mutant(
        "nobody wakes the queues of a fan-out that died",
        "NEVER",
        (UnwokenUpkeep, "run_once", flaws.wake_nobody),
        seed=7,
        weather=_DEATHS,
    ),
    "deaf rest": _mutant(
        "a wake-up rests though it was told of more",
        "NEVER",
        (WakeUps, "rest", flaws.rest_whatever_waits),
        seed=4,
        weather=_FAIR,
    ),
    "deaf wake-ups": _mutant(
        "a wake-up in somebody's hands is told nothing",
        "NEVER",
        (WakeUps, "wake", flaws.wake_the_resting),
        seed=4,
        weather=_FAIR,
    ),
    "endless take": _mutant(
        "a worker has a wake-up for ever", "NEVER", (WakeUps, "take", flaws.take_for_ever), weather=_DEATHS
    ),
    "endless hand-over": _mutant(
        "what the clock hands over never comes back",
        "NEVER",
        (WakeUps, "hand_over", flaws.hand_over_for_ever),
        weather=BusWeather(length=300, purged=0.3),
    ),
    "endless timers": _mutant(
        "what a timer hands over never comes back",
        "NEVER",
        (WakeUps, "hand_over_due", flaws.hand_over_due_for_ever),
        seed=1,
        weather=BusWeather(length=300, purged=0.3, refuses=0.3),
    ),
    "take without token": _mutant(
        "whoever hears of a wake-up takes it",
        "CROWDED REPEATED",
        (WakeUps, "take", flaws.take_for_anybody),
        seed=1,
        weather=_DOUBLES,
    ),
    "cut without cursor": _mutant(
        "a cut is stored wherever the cursor stands",
        "TWICE COUNTED FAULT MISSED",
        (cuts, "move_cursors", flaws.move_cursors_blindly),
        (cutting, "delivery_id", flaws.make_any_id),
        (BusCuts, "_move_events", flaws.move_events_blindly),
        seed=40,
        weather=_LATE_CUTS,
    ),
    "cut from the end": _mutant(
        "the last chunk is cut first", "ORDER", (BusCuts, "read_heads", flaws.read_backwards), weather=_CLICKS
    ),
    "crowded order": _mutant(
        "an ordered subscription has many open deliveries, and as many calls as another",
        "CROWDED",
        (EventSubscription, "most_open", property(lambda _: OPEN_DELIVERIES)),
        (QueueCalls, "_begin_calls", flaws.begin_many_calls),
        seed=2,
        weather=_REFUSALS,
    ),
    "content": _mutant(
        "whatever a receiver answers counts as taken",
        "UNTRUE",
        (CallResult, "is_success", property(lambda _: True)),
        weather=_REFUSALS,
    ),
    "no look after a pause": _mutant(
        "nobody looks at a queue that goes on",
        "NEVER",
        (WakeUps, "follow", flaws.follow_nothing),
        weather=_CLICKS,
    ),
}
"""By their names."""
