"""The wiring: how each process is put together, by hand and from top to bottom.

process.py       a process from its first line to its last; `carillon init`
servers.py       settings → the servers of a process, each opened on first use
rooms.py         servers → the flows of each subject
api.py           the API: routes and pages of every subject
workers.py       workers: one stage for each queue
schedulers.py    schedulers: the clock, and a table of periodic work
feedback.py      feedback: the readers of the stream
"""
