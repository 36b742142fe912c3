"""The clock: schedules, their occurrences, and their callbacks."""
