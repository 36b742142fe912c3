"""The protocol, broken on purpose: each mutant changes one thing of the product, or of what it relies on.

Three changes look like faults and are none, since something else stands behind them. They are no mutants, and each
would have to become one if that were removed:

- Recovery takes the marker of an earlier part for that of the last take. The marker says where the rest begins, and
  that is where the batch stands already.
- A lane that was lost starts again under its id. Every move of an owned batch compares its take as well.
- A chain's head is looked for status by status. The feed looks whether its predecessor is settled ("greedy feed" takes
  both away).
"""

from services.worker.jobs.finish import Mailer
from services.worker.push.send import Sender
from shared.jobs.finish import Breaker, Finish
from shared.jobs.moves import GroupFlow
from shared.jobs.store_batches import Batches
from shared.jobs.store_jobs import Jobs
from shared.jobs.store_milestones import Mails
from shared.jobs.upkeep import Upkeep
from shared.push.store import Feedbacks
from tests.models.push import flaws
from tests.models.push.promise import Promise
from tests.models.push.stream import ModelLane, ModelStream
from tests.models.push.weather import Weather
from tests.models.push.world import World
from tests.models.simulated.worlds import mutants_of

_mutant = mutants_of(World, Promise)
_COMMITS = Weather(
    length=200,
    uneven=True,
    small=True,
    unasked=0.04,
    unanswered=0.03,
    late=0.05,
    focus="lane.commit",
    doubled=0.06,
    hurry=0.02,
)
_LAGS = Weather(length=200, uneven=True, small=True, unanswered=0.05, focus="lane.commit", lag=0.8, doubled=0.06)
_MARKERS = Weather(
    length=400, patience=0.0, uneven=True, unasked=0.06, unanswered=0.02, focus="marker", dies=0.04, doubled=0.03
)
_TAKES = Weather(
    length=200, uneven=True, small=True, unasked=0.01, unanswered=0.01, late=0.01, focus="batches.take", doubled=0.06
)
_LOST = Weather(length=250, uneven=True, small=True, doubled=0.1, unasked=0.03, focus="lane.commit", join=0.1)
_PARTS = Weather(length=250, uneven=True, small=True, doubled=0.1, join=0.2)
_LOST_PARTS = Weather(length=200, uneven=True, small=True, doubled=0.1, unanswered=0.06, focus="lane.commit", join=0.25)
_TWICE = Weather(length=300, uneven=True, small=True, doubled=0.3, hurry=0.2)
_SLOW = Weather(length=250, patience=1.0, uneven=True, small=True, hurry=0.2)
_CLICKS = Weather(length=200, uneven=True, click=0.1)
_PLANS = Weather(length=150, uneven=True, doubled=0.1, join=0.1, sleeps=0.03, hurry=0.03)
_UNASKED = Weather(length=400, patience=0.0, uneven=True, unasked=0.1, click=0.01, join=0.1)
_PURGES = Weather(length=200, small=True, purged=0.3)
_FAILURES = Weather(length=150, uneven=True, broken=0.4, unasked=0.02, dies=0.01)
_GROUPS = Weather(length=200, uneven=True, click=0.08, grouped=True)
_FEEDBACK = Weather(length=200, uneven=True, heard=True, unanswered=0.02, focus="feedbacks")
_MAILS = Weather(length=200, uneven=True, small=True, mailed=True, unasked=0.03, focus="mail", click=0.02)
_MAILS_TWICE = Weather(length=250, uneven=True, mailed=True, doubled=0.3, click=0.02)

MUTANTS = {
    "no fence": _mutant(
        "the marker is read without fencing the owner",
        "TWICE UNTRUE",
        (ModelStream, "_fence", flaws.fence_nobody),
        seed=27,
        weather=_COMMITS,
    ),
    "marker before fence": _mutant(
        "the marker is read, and then the owner is fenced",
        "TWICE UNTRUE",
        (ModelStream, "recover", flaws.read_and_fence),
        seed=0,
        weather=_LAGS,
    ),
    "error is no marker": _mutant(
        "a failed read of the marker counts as no marker",
        "TWICE UNTRUE",
        (ModelStream, "_read", flaws.take_errors_for_nothing),
        seed=4,
        weather=_MARKERS,
    ),
    "marker outside": _mutant(
        "the marker has a transaction of its own, after the records",
        "TWICE UNTRUE",
        (ModelLane, "_transact", flaws.transact_twice),
        seed=2,
        weather=_COMMITS,
    ),
    "blind disown": _mutant(
        "recovery, or an aborted owner, clears whatever owner there is",
        "TWICE UNTRUE",
        flaws.blind("disown", "owner", "attempts"),
        seed=43,
        weather=_LOST,
    ),
    "blind advance": _mutant(
        "a batch goes on to its next part whoever owns it by now",
        "TWICE UNTRUE",
        flaws.blind("advance", "owner", "attempts"),
        seed=494,
        weather=_PARTS,
    ),
    "believed commit": _mutant(
        "a commit without a reply counts as done",
        "UNTRUE",
        (ModelLane, "produce", flaws.believe_commit),
        seed=0,
        weather=_COMMITS,
    ),
    "believed abort": _mutant(
        "a commit without a reply counts as rolled back",
        "TWICE UNTRUE",
        (ModelLane, "produce", flaws.believe_abort),
        seed=1,
        weather=_COMMITS,
    ),
    "believed take": _mutant(
        "a take without a reply counts as won",
        "TWICE UNTRUE",
        flaws.heard("batches.take", flaws.believe_take),
        seed=5,
        weather=_TAKES,
    ),
    "late start": _mutant(
        "a lane is started after its id was written to the batch",
        "TWICE UNTRUE",
        (ModelStream, "_start_lane", flaws.start_no_lane),
        (ModelLane, "_transact", flaws.start_and_transact),
        seed=534,
        weather=_COMMITS,
    ),
    "greedy feed": _mutant(
        "a chain is fed its lowest planned batch, though an earlier one is unsettled",
        "CROWDED",
        (Batches, "heads", flaws.heads_among_planned),
        (Batches, "find_settled", flaws.believe_settled),
        seed=10,
        weather=_CLICKS,
    ),
    "successor of parked": _mutant(
        "who puts a batch back to planned goes on with its successor",
        "CROWDED",
        (Sender, "run", flaws.run_and_feed),
        seed=16,
        weather=_CLICKS,
    ),
    "ignored turn": _mutant(
        "messages of another turn are worked on", "FENCED", (Sender, "run", flaws.run_any_turn), seed=640, weather=_SLOW
    ),
    "tried by losers": _mutant(
        "who loses a batch tries again",
        "CHURN FENCED",
        flaws.heard("batches.take", flaws.retry_losers),
        seed=3,
        weather=_TWICE,
    ),
    "dropped owned": _mutant(
        "stop drops a batch that a lane owns",
        "ILLEGAL",
        (Batches, "drop_unsent", flaws.drop_owned),
        seed=11,
        weather=_CLICKS,
    ),
    "open end": _mutant(
        "a job is completed as soon as all batches that are there are settled",
        "TOTALS",
        (Jobs, "view", flaws.view_ended),
        (Jobs, "get_standing", flaws.get_standing_ended),
        seed=11,
        weather=_UNASKED,
    ),
    "stubborn planner": _mutant(
        "an overtaken planner goes on with the rest of its page",
        "TORN",
        (Batches, "add_page", flaws.add_stubbornly),
        seed=0,
        weather=_PLANS,
    ),
    "unended stop": _mutant(
        "a stopped job is closed without ending its plan",
        "TOTALS NEVER",
        (Finish, "_end_plan", flaws.end_without_entry),
        seed=3,
        weather=_CLICKS,
    ),
    "no upkeep": _mutant(
        "nobody looks for lost work", "NEVER", (Upkeep, "run_once", flaws.look_for_nothing), seed=2, weather=_PURGES
    ),
    "any take": _mutant(
        "a move of an owned batch matches its lane, and not the take",
        "TWICE UNTRUE",
        flaws.blind("settle", "attempts"),
        flaws.blind("advance", "attempts"),
        flaws.blind("disown", "attempts"),
        seed=12,
        weather=_LOST_PARTS,
    ),
    "stale part": _mutant(
        "a take does not see that another one was there since its part was read",
        "TWICE UNTRUE",
        flaws.blind("take", "attempts"),
        seed=17,
        weather=_PARTS,
    ),
    "remembered gate": _mutant(
        "a worker looks at a job's status once", "BEHIND", flaws.heard("jobs.get_standing", flaws.look_once), seed=0
    ),
    "blind breaker": _mutant(
        "nobody looks how many batches have failed",
        "UNHELD",
        (Breaker, "look", flaws.hold_nobody),
        seed=0,
        weather=_FAILURES,
    ),
    "forgotten zone": _mutant(
        "a move of a group forgets one of its jobs",
        "UNMOVED",
        (GroupFlow, "_move_each", flaws.move_all_but_one),
        seed=2,
        weather=_GROUPS,
    ),
    "blind flush": _mutant(
        "feedback is stored wherever the position stands by now",
        "COUNTED",
        (Feedbacks, "_move", flaws.move_blindly),
        seed=1,
        weather=_FEEDBACK,
    ),
    "noted first": _mutant(
        "a mail is noted as sent before it is sent",
        "UNTOLD",
        (Mailer, "run", flaws.note_first),
        seed=1,
        weather=_MAILS,
    ),
    "lease for all": _mutant(
        "whoever wants to send a mail gets its lease",
        "REPEATED",
        (Mails, "lease", flaws.lease_to_all),
        seed=0,
        weather=_MAILS_TWICE,
    ),
}
"""By their names."""
