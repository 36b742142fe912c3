"""The protocol, broken on purpose: each mutant changes one thing of the product.

Two changes look like faults and are none, since something else stands behind them. They are no mutants, and each would
have to become one if that were removed:

- Recovery disowns whoever owns the batch by now. Every write of an owner who lost it is refused by the ledger.
- Recovery judges a worker's own entries too. It comes before the worker writes any, or when all its calls have ended.
"""

from services.worker.messages import entries
from services.worker.messages.dispatch import Dispatch
from services.worker.messages.entries import EntryWriter
from services.worker.messages.in_hand import BatchesInHand
from shared.jobs.upkeep import Upkeep
from shared.messages import store_ledger as ledger
from shared.messages.clock import AccountClock
from shared.messages.rules import jobs as message_jobs
from shared.messages.rules.pacing import Block
from shared.messages.store_credentials import Credentials
from shared.messages.store_jobs import MessageJobs
from shared.messages.store_ledger import MessageLedger
from tests.models.messages import flaws
from tests.models.messages import world as worlds
from tests.models.messages.promises import Promise
from tests.models.messages.weather import MessageWeather
from tests.models.messages.world import World
from tests.models.simulated.worlds import mutants_of

_mutant = mutants_of(World, Promise)
_DEATHS = MessageWeather(length=120, patience=2.0, dies=0.03, slow=0.3, lost=0.1, unanswered=0.01)
_SLEEPS = MessageWeather(length=120, patience=2.0, sleeps=0.06, doubled=0.05, slow=0.2, uneven=True)
_LONG_SLEEPS = MessageWeather(length=200, patience=2.0, sleeps=0.1, doubled=0.1, slow=0.5, uneven=True)
_LOSSES = MessageWeather(length=120, patience=2.0, unasked=0.02, unanswered=0.02, late=0.02, focus="messages.write")
_RACES = MessageWeather(length=120, uneven=True, lag=0.3)
_CLOCKS = MessageWeather(length=300, crowded=True, another_clock=0.02, slow=0.6)
_SHARED = MessageWeather(length=120, crowded=True, shared=True, uneven=True, lag=0.1)
_NEWS = MessageWeather(length=120, news=0.2, lost=0.3, slow=0.5, uneven=True)
_REFUSALS = MessageWeather(length=500, early=True, refuses=0.4, away=0.2, lost=0.2)
_CLICKS = MessageWeather(length=600, crowded=True, click=0.15)
_FAIR = MessageWeather(length=80, crowded=True)

MUTANTS = {
    "no fence": _mutant(
        "whoever had the batch before writes on",
        "TWICE HELD UNNOTED UNTRUE TALLY",
        (MessageLedger, "write", flaws.write_for_anybody),
        seed=33,
        weather=_SLEEPS,
    ),
    "no version": _mutant(
        "an entry is changed whatever it is by now",
        "TWICE HELD UNNOTED UNTRUE TALLY",
        (MessageLedger, "_change", flaws.change_whatever_is_there),
        weather=_NEWS,
    ),
    "believed write ahead": _mutant(
        "a write ahead without a reply counts as done",
        "UNNOTED",
        (EntryWriter, "write", flaws.believe_write_ahead),
        seed=5,
        weather=_LOSSES,
    ),
    "impatient recovery": _mutant(
        "recovery does not wait until a call is over",
        "UNNOTED",
        (entries, "recover", flaws.recover_at_once),
        seed=21,
        weather=_LONG_SLEEPS,
    ),
    "bold recovery": _mutant(
        "recovery repeats, whatever the policy says",
        "HELD",
        (entries, "recover", flaws.repeat_always),
        seed=5,
        weather=_DEATHS,
    ),
    "timeless grant": _mutant(
        "a grant is used after the clock has changed",
        "FAST",
        (AccountClock, "look", flaws.look_without_generations),
        (Dispatch, "_sleep_until", flaws.sleep_in_one_go),
        seed=81,
        weather=_CLOCKS,
    ),
    "late calls": _mutant(
        "nobody looks whether an instant is over",
        "FAST UNNOTED",
        (Dispatch, "_is_in_time", flaws.be_in_time_always),
        seed=2,
        weather=_RACES,
    ),
    "endless notes": _mutant(
        "a call begins at an instant that its note does not cover",
        "UNNOTED",
        (Dispatch, "_covered_until_us", flaws.cover_for_ever),
        seed=54,
        weather=_SLEEPS,
    ),
    "blind reservation": _mutant(
        "pace and places are stored whoever was faster",
        "FAST",
        (Credentials, "change_traffic", flaws.change_traffic_blindly),
        seed=18,
        weather=_RACES,
    ),
    "columns twice": _mutant(
        "the columns of a block are dealt out again",
        "FAST",
        (Block, "take", flaws.deal_out_again),
        seed=1,
        weather=_SHARED,
    ),
    "retry without rounds": _mutant(
        "a retry sends what it has sent already",
        "UNWANTED HELD TWICE NEVER",
        (message_jobs, "is_to_be_sent", flaws.send_in_any_round),
        (entries, "is_to_be_sent", flaws.send_in_any_round),
        seed=12,
        weather=_REFUSALS,
    ),
    "retry of all": _mutant(
        "a job sends whatever has not arrived",
        "UNWANTED HELD NEVER",
        (message_jobs, "is_to_be_sent", flaws.send_whatever_is_not_sent),
        (entries, "is_to_be_sent", flaws.send_whatever_is_not_sent),
        seed=0,
        weather=_REFUSALS,
    ),
    "meek callbacks": _mutant(
        "whatever a callback says is written", "UNTRUE", (worlds, "hear", flaws.hear_anything), weather=_NEWS
    ),
    "no count": _mutant(
        "entries change without their tally", "TALLY", (ledger, "difference", flaws.count_nothing), weather=_FAIR
    ),
    "deaf senders": _mutant(
        "a worker goes on whatever becomes of the job",
        "DEAF",
        (BatchesInHand, "_may_go_on", flaws.go_on),
        seed=15,
        weather=_CLICKS,
    ),
    "youngest first": _mutant(
        "the youngest job goes first", "PASSED", (MessageJobs, "find_running", flaws.feed_the_youngest), weather=_FAIR
    ),
    "no upkeep": _mutant(
        "nobody looks for lost work", "NEVER", (Upkeep, "run_once", flaws.look_for_nothing), seed=1, weather=_DEATHS
    ),
}
"""By their names."""
