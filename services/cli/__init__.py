"""The `carillon` command: what runs a deployment, and the verbs that act on one that runs.

root.py       the command itself; it loads a module when a verb of it is chosen
running.py    the commands that run the services
verbs/        a module a noun: jobs, apps, schedules, ...
verb.py       what all verbs have: their common options, their session, their exit codes
contexts.py   the deployments that a person works with
api.py        the API as the verbs ask it, on `carillon-client`
output/       tables, JSON, times, bars: how answers are shown
"""

from services.cli.root import main

__all__ = ["main"]
