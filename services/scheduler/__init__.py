"""The scheduler: the clock, which fires what is due, and upkeep, which finds work that lost its message or its process.
Any number of processes may run it."""
