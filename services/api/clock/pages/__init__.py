"""The clock's pages: schedules, what fires next, and dead letters.

schedules     what fires next, a search, one schedule and what is done with it
definitions   a schedule is made or edited
dead_letters  what was given up, by error, one by one
words         a definition in words
forms         a definition as the fields of a form
due           when schedules fire, and how late they were, as columns
"""
