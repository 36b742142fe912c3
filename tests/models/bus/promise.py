"""What can be broken."""

from enum import StrEnum


class Promise(StrEnum):
    """What can be broken, in the words of a failed test."""

    TWICE = "an event is in two deliveries of a subscription"
    MISSED = "an event is in no delivery of a subscription that wants it"
    UNWANTED = "an event is in the queue of a subscription that does not want it"
    ORDER = "events are out of order"
    BACKWARDS = "a position goes backwards"
    COUNTED = "a count is not what there is"
    UNTRUE = "a delivery does not tell what its receiver got"
    CHANGED = "a delivery's body changes from attempt to attempt"
    CROWDED = "an ordered subscription has two deliveries on their way"
    IDLE = "a receiver is called though it is not to be"
    REPEATED = "a delivery that is done is called again"
    LETTER = "a dead delivery has no letter"
    UNACCEPTED = "an accepted event is not in the log"
    NEVER = "not delivered in the end"
    FAULT = "a fault of ours"
