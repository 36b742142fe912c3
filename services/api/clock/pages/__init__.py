"""The pages of the clock: schedules, what fires next, and dead letters."""
