"""The messages of a job, and one message with its events."""

from collections.abc import Mapping, Sequence
from typing import Any

from services.api.http.pages.routes import FormRoute, Moved, PageRoute, PageSet, Values
from services.api.http.pages.typed import MANY_THINGS, check_name, refuse
from services.api.http.pages.visits import SHOWN, Visit, address
from services.api.jobs.job_view import ENDED
from services.api.jobs.pages.job_words import MESSAGE_STATES, message_pieces
from services.api.messages.pages.accounts import SECTION

REASONS = {
    "malformed": "not an address of this kind",
    "suppressed": "a suppression bars it",
    "unsubscribed": "the recipient has unsubscribed",
    "refused": "the provider rejects this content or this recipient",
    "unregistered": "the address no longer exists",
    "hard-bounce": "the recipient's server rejects it for good",
    "soft-bounce": "the recipient's server rejected it this time",
    "complaint": "the recipient marked it as spam",
    "undelivered": "the provider accepted it, but could not deliver it",
    "address-changed": "the recipient's row has another address now",
    "unrendered": "the rendered template cannot be sent",
    "gave-up": "no attempt succeeded",
    "expired": "its expiry has passed",
    "cancelled": "cancelled before it was sent",
    "unknown": "the provider may or may not have accepted it",
    "other": "each message has the provider's words",
}
RETRIED = {
    "failed": "failed: refused, not delivered, or given up",
    "unsent": "unsent: left by a stop",
    "unknown": "unknown: some recipients may receive it twice",
}
FOUND = 200
"""How many messages to one recipient are searched for those of a job."""

_JOB = "/apps/{}/jobs/{}"
_MESSAGE = "/apps/{}/messages/{}"
_JOB_PAGE = "/messages/jobs/{app_id:str}/{job_id:str}"
_MESSAGE_PAGE = "/messages/{app_id:str}/messages/{message_id:str}"

Answer = Mapping[str, Any]


class LedgerPages(PageSet):
    section = SECTION

    @PageRoute(_JOB_PAGE, template="messages/ledger.html", refresh_seconds=2)
    async def show_ledger(self, visit: Visit) -> Values:
        app_id, job_id = visit.path("app_id"), visit.path("job_id")
        job = await visit.read(_JOB, app_id, job_id)
        state, recipient = visit.query("state"), visit.query("recipient").strip()
        if recipient:
            found, next_cursor, more = await self._search(visit, recipient)
        else:
            listed = await visit.read_list(f"{_JOB}/messages", app_id, job_id, state=state)
            found, next_cursor, more = listed.value, listed.next, False
        account = None
        if job.get("credentialId"):
            account = await visit.try_read("The account", "/apps/{}/credentials/{}", app_id, job["credentialId"])
        counts = job.get("messages") or {}
        may_retry = job["state"] in ENDED and not job["metadata"].get("dryRun")
        return {
            "title": f"Messages of {job['name'] or job_id}",
            "job": job,
            "account": account,
            "counts": counts,
            "pieces": message_pieces(counts),
            "reasons": sorted(job["reasons"].items(), key=lambda each: -each[1]),
            "meanings": REASONS,
            "states": [name for name in MESSAGE_STATES if name != "unsent"],
            "state": state,
            "recipient": recipient,
            "messages": found,
            "more": more,
            "next": next_cursor,
            "retried": {name: says for name, says in RETRIED.items() if counts.get(name)} if may_retry else {},
            "many": MANY_THINGS,
        }

    @FormRoute(_JOB_PAGE + "/retry", page="show_ledger")
    async def retry_messages(self, visit: Visit) -> Moved:
        app_id, job_id = visit.path("app_id"), visit.path("job_id")
        states = [state for state in visit.lists.get("states", []) if state in RETRIED]
        if not states:
            raise refuse("states", "choose the messages to send again")
        job = await visit.read(_JOB, app_id, job_id, exact=True)
        counts = job.get("messages") or {}
        count = sum(counts.get(state, 0) for state in states)
        check_name(visit.form, job["templateName"] if count > MANY_THINGS else "")
        await visit.send("POST", f"{_JOB}/retry", app_id, job_id, body={"states": states})
        return Moved(address("/messages/jobs/{}/{}", app_id, job_id), "retrying")

    @PageRoute(_MESSAGE_PAGE, template="messages/message.html", refresh_seconds=2)
    async def show_message(self, visit: Visit) -> Values:
        app_id = visit.path("app_id")
        app, message = await visit.read_all(
            visit.read("/apps/{}", app_id), visit.read(_MESSAGE, app_id, visit.path("message_id"))
        )
        account = await visit.try_read("The account", "/apps/{}/credentials/{}", app_id, message["credentialId"])
        job_id = message.get("jobId")
        job = await visit.try_read("Its job", "/apps/{}/jobs/{}", app_id, job_id) if job_id else None
        return {
            "title": "Message",
            "job": job,
            "app": app,
            "message": message,
            "account": account,
            "attempts": [*message["earlier"], last_attempt(message)] if message["attempt"] else message["earlier"],
            "meanings": REASONS,
        }

    @FormRoute(_MESSAGE_PAGE + "/cancel", page="show_message")
    async def cancel_message(self, visit: Visit) -> Moved:
        parts = visit.path("app_id"), visit.path("message_id")
        await visit.send("DELETE", _MESSAGE, *parts)
        return Moved(address("/messages/{}/messages/{}", *parts), "cancelled")

    async def _search(self, visit: Visit, recipient: str) -> tuple[Sequence[Answer], str, bool]:
        """The job's messages to this recipient, and whether some were not looked at. The ids of all messages of a job
        begin alike."""
        app_id = visit.path("app_id")
        some = await visit.read_list(f"{_JOB}/messages", app_id, visit.path("job_id"), limit=1, cursor="")
        if not some.value:
            return [], "", False
        begins = some.value[0]["id"].partition(".")[0] + "."
        found = await visit.read_list("/apps/{}/messages", app_id, recipient=recipient, limit=FOUND, cursor="")
        of_job = [message for message in found.value if message["id"].startswith(begins)]
        return of_job[:SHOWN], "", bool(found.next)


def last_attempt(message: Answer) -> Answer:
    """The attempt that a message's own fields tell of."""
    return {name: message[name] for name in ("attempt", "state", "reason", "detail", "providerId")}
