"""Steps that several services share: start a job, feed its chains, finish it, find lost work, make schedules, settle
attempts.

The documents in MongoDB are the truth and every move is a compare-and-set, so each step may be done twice, late, or by
two processes at once. Upkeep finds steps that a dead process left unfinished, and repeats them.
"""
