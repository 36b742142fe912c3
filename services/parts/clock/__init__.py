"""The clock: schedules, their occurrences, and the callbacks that these fire."""
