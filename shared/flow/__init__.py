"""What several services do alike, above the capabilities: start a job, feed its chains, settle a batch, finish, find
lost work.

The documents in MongoDB are the truth and every move is a compare-and-set, so each of these can be done twice, late,
or by two processes at once. What a dead process left half done, `lost` finds and has done again.
"""

from shared.flow.breaker import Breaker
from shared.flow.feed import Feed
from shared.flow.finish import Finish
from shared.flow.groups import GroupFlow
from shared.flow.jobs import JobFlow
from shared.flow.lost import Lost
from shared.flow.revocations import RevocationFlow
from shared.flow.schedules import ScheduleFlow
from shared.flow.settlement import Settlement
from shared.flow.signing import Signing
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
