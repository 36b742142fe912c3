"""What several services do alike, above the capabilities: start a job, feed its chains, settle a batch, finish, find
lost work.

The documents in MongoDB are the truth and every move is a compare-and-set, so each of these can be done twice, late,
or by two processes at once. What a dead process left half done, `lost` finds and has done again.
"""

from shared.flow.accounts.signing import Signing
from shared.flow.clock.revocations import RevocationFlow
from shared.flow.clock.schedules import ScheduleFlow
from shared.flow.clock.settlement import Settlement
from shared.flow.jobs.breaker import Breaker
from shared.flow.jobs.feed import Feed
from shared.flow.jobs.finish import Finish
from shared.flow.jobs.groups import GroupFlow
from shared.flow.jobs.jobs import JobFlow
from shared.flow.jobs.upkeep import Lost
from shared.flow.time import DatabaseTime

__all__ = [
    "Breaker",
    "DatabaseTime",
    "Feed",
    "Finish",
    "GroupFlow",
    "JobFlow",
    "Lost",
    "RevocationFlow",
    "ScheduleFlow",
    "Settlement",
    "Signing",
]
