"""A storm of processes: what kills, freezes and restarts them, what is asked of them meanwhile, and the verdict.

The seed decides what is done and when; the processes' own pace is theirs, so a seed repeats the storm and not each of
its moments. The verdict is counted from outside, on Kafka and on a user's queue.
"""
