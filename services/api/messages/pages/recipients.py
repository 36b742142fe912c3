"""`/ui/messages/{app}/recipients`: what somebody got of an app, and who gets nothing more.

Forms move on to the page without the address: where a browser goes is written down by proxies.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from services.api.http.pages.inner import ApiProblem
from services.api.http.pages.routes import FormRoute, Moved, PageRoute, PageSet, Values
from services.api.http.pages.typed import read_lines, refuse
from services.api.http.pages.visits import SHOWN, Visit, address
from services.api.messages.messages import RUNNING_HEADER
from services.api.messages.pages.accounts import SECTION
from services.api.messages.pages.kinds import KINDS
from services.api.messages.pages.ledger import REASONS
from shared.domain.messages.recipients import explain_search

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
        """One recipient, if somebody looks for one, else all who get nothing more."""
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
