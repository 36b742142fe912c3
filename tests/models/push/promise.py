"""What can be broken."""

from enum import StrEnum


class Promise(StrEnum):
    """What can be broken, in the words of a failed test."""

    TWICE = "a device's record is out twice"
    UNTRUE = "a batch does not tell what is out"
    BACKWARDS = "a marker goes backwards"
    CROWDED = "a chain has two batches in flight"
    ILLEGAL = "a move that the table does not have"
    TORN = "the plan is torn"
    TOTALS = "a job is closed too early, or its sums are wrong"
    BEHIND = "something goes out that passed no gate"
    MISSED = "a device was left out"
    NEVER = "not settled in the end"
    CHURN = "taken more often than it was delivered"
    FENCED = "a healthy lane is fenced"
    UNHELD = "a job is held without cause, or not held for all of its failures"
    UNMOVED = "a move of a group has left one of its jobs"
    COUNTED = "the feedback on a job is not what was read"
    UNTOLD = "a move of a job has no mail"
    REPEATED = "a mail is sent once more without need"
    FAULT = "a fault of ours"
