"""The steps that several services share, above the capabilities: start a job, feed its chains, finish it, find
lost work, make schedules, settle their attempts.

The documents in MongoDB are the truth and every move is a compare-and-set, so each of these can be done twice, late,
or by two processes at once. Upkeep finds the steps that a dead process left half done, and has them done again.
"""
