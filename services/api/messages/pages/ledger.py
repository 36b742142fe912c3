"""The messages of a job, one message with its events, and `/ui/messages/{app}/recipients`: the messages to a recipient,
and the recipients who get nothing more.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from services.api.http.pages.routes import (
    MANY_THINGS,
    FormRoute,
    Moved,
    PageRoute,
    PageSet,
    Values,
    check_name,
    read_lines,
    refuse,
)
from services.api.http.pages.visits import SHOWN, ApiProblem, Visit, address
from services.api.jobs.job_view import ENDED
from services.api.jobs.pages.job_list import MESSAGE_STATES, message_pieces
from services.api.messages.messages import RUNNING_HEADER
from services.api.messages.pages.accounts import KINDS, SECTION
from shared.messages.rules.recipients import explain_search

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


CHANNELS = {"mail": "mail address", "sms": "phone number", "push": "device token", "other": "other"}
CAUSES = {
    "hand": "by hand: no message passes",
    "complaint": "a complaint: no message passes",
    "bounce": "a bounce: no message passes",
    "unsubscribe": "an unsubscription: only transactional messages pass",
}
_PAGE = "/messages/{app_id:str}/recipients"
_SUPPRESSIONS = "/apps/{}/suppressions"
_THERE = 200
_MOST_ADDRESSES = 1_000
_WRONG_SHOWN = 3
_NAMES_READ = 200


class RecipientPages(PageSet):
    section = SECTION

    @PageRoute(_PAGE, template="messages/recipients.html")
    async def show_recipients(self, visit: Visit) -> Values:
        app_id, wanted = visit.path("app_id"), visit.query("address").strip()
        app = await visit.read("/apps/{}", app_id)
        operates = visit.may("operator", app=app_id)
        looks = bool(wanted) and operates
        accounts = await visit.read("/apps/{}/credentials", app_id, limit=_NAMES_READ) if operates else []
        senders = _senders(accounts)
        values = {
            "title": f"Recipients of {app['name']}",
            "app": app,
            "wanted": wanted if looks else "",
            "wrong": "",
            "messages": [],
            "channels": CHANNELS,
            "accounts": {account["id"]: account["name"] for account in accounts},
            "senders": senders,
            "offered": sorted(CHANNELS, key=lambda channel: channel not in senders),
            "causes": CAUSES,
            "meanings": REASONS,
            "most": _MOST_ADDRESSES,
        }
        if looks:
            return values | await self._look_for(visit, app_id, wanted)
        listed = await visit.read_list(_SUPPRESSIONS, app_id)
        return values | {"suppressions": listed.value, "next": listed.next}

    @FormRoute(_PAGE + "/suppress", page="show_recipients")
    async def suppress_recipients(self, visit: Visit) -> Moved:
        """Have these get nothing more. Those that cannot be read stay in the form; the others are done."""
        app_id, lines = visit.path("app_id"), read_lines(visit.form, "addresses")
        if not 1 <= len(lines) <= _MOST_ADDRESSES:
            raise refuse("addresses", f"type 1 to {_MOST_ADDRESSES:,} addresses, one per line")
        shared = {name: visit.read_field(name) for name in ("channel", "list", "cause", "defaultRegion")}
        given = {name: value for name, value in shared.items() if value}
        if len(lines) == 1:
            await self._suppress_one(visit, app_id, given | {"address": lines[0]})
            return Moved(address("/messages/{}/recipients", app_id), f"suppressed-{shared['channel']}")
        items = [given | {"address": line} for line in lines]
        answers = await visit.send("POST", f"{_SUPPRESSIONS}/bulk", app_id, body=items)
        self._tell_wrong(visit, lines, answers)
        fresh = sum(answer["status"] != _THERE for answer in answers)
        return Moved(address("/messages/{}/recipients", app_id), "suppressed-many", fresh)

    @FormRoute(_PAGE + "/suppressions/{suppression:str}/delete", page="show_recipients")
    async def delete_suppression(self, visit: Visit) -> Moved:
        app_id = visit.path("app_id")
        await visit.send("DELETE", _SUPPRESSIONS + "/{}", app_id, visit.path("suppression"))
        return Moved(address("/messages/{}/recipients", app_id), "suppression-deleted")

    @FormRoute(_PAGE + "/forget", page="show_recipients")
    async def forget_recipient(self, visit: Visit) -> Moved:
        app_id, wanted = visit.path("app_id"), visit.read_field("address")
        answer = await visit.send("DELETE", "/apps/{}/recipients", app_id, query={"address": wanted})
        said = "forgotten-some" if answer["more"] else "forgotten"
        return Moved(address("/messages/{}/recipients", app_id), said, answer["redacted"])

    async def _look_for(self, visit: Visit, app_id: str, wanted: str) -> Values:
        try:
            found, suppressions = await visit.read_all(
                visit.read_list("/apps/{}/messages", app_id, recipient=wanted),
                visit.read(_SUPPRESSIONS, app_id, address=wanted, limit=SHOWN),
            )
        except ApiProblem as problem:
            if not problem.is_refusal:
                raise
            return {"wrong": problem.detail, "suppressions": [], "next": ""}
        running = int(found.headers.get(RUNNING_HEADER, 0))
        hint = explain_search(True, running)  # the page itself says that nothing is found
        return {"messages": found.value, "suppressions": suppressions, "next": found.next, "hint": hint}

    async def _suppress_one(self, visit: Visit, app_id: str, body: dict[str, str]) -> None:
        try:
            await visit.send("POST", _SUPPRESSIONS, app_id, body=body)
        except ApiProblem as problem:
            field = "addresses" if problem.field == "address" else problem.field
            raise ApiProblem(problem.status, problem.detail, field) from None

    def _tell_wrong(self, visit: Visit, lines: Sequence[str], answers: Sequence[Mapping[str, Any]]) -> None:
        """Raise `ApiProblem` if some were refused, and leave only those in the form."""
        wrong = [answer for answer in answers if answer["status"] >= HTTPStatus.BAD_REQUEST]
        if not wrong:
            return
        visit.form["addresses"] = "\n".join(lines[answer["index"]] for answer in wrong)
        why = "; ".join(sorted({answer["error"]["reason"] for answer in wrong})[:_WRONG_SHOWN])
        done = len(answers) - len(wrong)
        raise ApiProblem(422, f"{done:,} are suppressed; {len(wrong):,} could not be read and are left below ({why})")


def _senders(accounts: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    senders: dict[str, list[str]] = {}
    for account in accounts:
        senders.setdefault(KINDS[account["kind"]].channel, []).append(account["name"])
    return senders
