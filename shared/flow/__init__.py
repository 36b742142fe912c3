"""What several services do alike, above the capabilities: start a job, feed its chains, finish it, find
lost work, make schedules, settle their attempts.

The documents in MongoDB are the truth and every move is a compare-and-set, so each of these can be done twice, late,
or by two processes at once. What a dead process left half done, upkeep finds and has done again.
"""
