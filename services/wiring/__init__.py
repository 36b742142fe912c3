"""The wiring: how each process is put together, by hand and from top to bottom.

    servers.py       settings → the servers of a process, each opened on first use
    rooms.py         servers → the flows of each subject that several processes share
    api.py           the API: routes and pages of every subject
    workers.py       workers: one stage for each queue
    schedulers.py    schedulers: the clock, and a table of periodic work
    feedback.py      feedback: the readers of the stream
    process.py       a process from its first line to its last; `carillon init`

A new route, stage or periodic piece of work is a line in one of these files.
"""

PROCESSES = ("api", "scheduler", "worker", "feedback-bus", "feedback-answers")
