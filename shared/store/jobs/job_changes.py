"""Changes of a job's document, each a compare-and-set, with what they leave behind beside the fields: events, a mail
that is due, a milestone that the audit is to be told of. So there is none of these without the change, and none is lost
behind it.
"""

from collections.abc import Sequence

import msgspec
from pymongo import ReturnDocument
from pymongo.asynchronous.collection import AsyncCollection

from shared.domain.jobs.events import DueMail, Event, Milestone
from shared.domain.jobs.jobs import Job
from shared.store.documents import BSON_TYPES, Document, translate_errors
from shared.store.jobs.job_documents import job_of

VIEW = {"plan.templates": 0}
NOW = {"changed_at": True}
_EVENTS = 100  # of a job that is paused and resumed all day, the last ones


async def change_job(
    jobs: AsyncCollection[Document],
    query: Document,
    fields: Document,
    *,
    shown: Document | None = VIEW,
    dated: Document = NOW,
    events: Sequence[Event] = (),
    mail: DueMail | None = None,
    milestone: Milestone | None = None,
) -> Job | None:
    """The changed job; `None` where none matches. Fields that are `dated` get the database's time."""
    change = _change(fields, dated, events, mail, milestone)
    with translate_errors():
        found = await jobs.find_one_and_update(query, change, projection=shown, return_document=ReturnDocument.AFTER)
    return None if found is None else job_of(found)


async def change_unread_job(
    jobs: AsyncCollection[Document], query: Document, fields: Document, *, events: Sequence[Event]
) -> bool:
    """As `change_job`, where nobody needs the job: `False` where none matches. For an answer MongoDB would copy the
    whole document beside the change, with its copies of templates."""
    with translate_errors():
        changed = await jobs.update_one(query, _change(fields, NOW, events))
    return changed.matched_count == 1


def _change(
    fields: Document,
    dated: Document,
    events: Sequence[Event],
    mail: DueMail | None = None,
    milestone: Milestone | None = None,
) -> Document:
    chosen, pushed = dict(fields), {}
    if events:
        pushed["events"] = {"$each": [msgspec.to_builtins(event) for event in events], "$slice": -_EVENTS}
    if mail is not None:
        pushed["mails"] = msgspec.to_builtins(mail)
        chosen["mail_since"] = mail.at
    if milestone is not None:
        pushed["milestones"] = msgspec.to_builtins(milestone, builtin_types=BSON_TYPES)
        dated = dated | {"milestone_since": True}
    parts = {"$currentDate": dated, "$set": chosen, "$push": pushed}
    return {operator: part for operator, part in parts.items() if part}
