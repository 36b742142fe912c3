"""Changes of a job's document, each a compare-and-set that also stores their events, a due mail and a milestone for the
audit: these exist exactly if the change does."""

from collections.abc import Sequence

import msgspec
from pymongo import ReturnDocument
from pymongo.asynchronous.collection import AsyncCollection

from shared.domain.jobs.events import DueMail, Event, Milestone
from shared.domain.jobs.jobs import Job
from shared.store.documents import BSON_TYPES, Document
from shared.store.jobs.job_documents import job_of

VIEW = {"plan.templates": 0}
NOW = {"changed_at": True}
_EVENTS = 100  # the last ones of a job that is paused and resumed all day


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
    """The changed job; `None` if none matches. Fields that are `dated` get the database's time."""
    change = _change(fields, dated, events, mail, milestone)
    found = await jobs.find_one_and_update(query, change, projection=shown, return_document=ReturnDocument.AFTER)
    return None if found is None else job_of(found)


async def change_unread_job(
    jobs: AsyncCollection[Document], query: Document, fields: Document, *, events: Sequence[Event]
) -> bool:
    """As `change_job`, without reading the job: `False` if none matches. For an answer MongoDB would copy the whole
    document, with its copies of templates."""
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
