"""Twilio's Messages resource as a process: what it takes, and its words for what it does not take.

A message is examined where its rule would accept it. The rules are those of
https://www.twilio.com/docs/messaging/api/message-resource and of the pages of the codes.
"""

import asyncio
import json
import re
from urllib.parse import parse_qsl

from tests.providers.http_fake import Connection, serve
from tests.providers.rules import Arrived, Rule

WHATSAPP = "whatsapp:"

_E164 = re.compile(r"\+[1-9][0-9]{6,14}")
_CONTENT = re.compile(r"HX[0-9a-fA-F]{32}")


class TwilioConnection(Connection):
    """One connection: call, answer, call, answer."""

    def examine(self, call: Arrived, rule: Rule) -> Rule:
        return rule if rule.status != 201 else (_fault(dict(parse_qsl(call.body, keep_blank_values=True))) or rule)


def error(status: int, code: int, message: str) -> Rule:
    """An error as Twilio tells it."""
    told = {
        "code": code,
        "message": message,
        "status": status,
        "more_info": f"https://www.twilio.com/docs/errors/{code}",
    }
    return Rule(status, json.dumps(told))


def _fault(form: dict[str, str]) -> Rule | None:
    to, sender = form.get("To", ""), form.get("From", "")
    if not _E164.fullmatch(to.removeprefix(WHATSAPP)):
        return error(400, 21_211, f"Invalid 'To' Phone Number: {to}")
    if sender and to.startswith(WHATSAPP) != sender.startswith(WHATSAPP):
        return error(400, 21_910, "Invalid From and To pair. From and To should be of the same channel")
    if "ContentSid" not in form:
        if "ContentVariables" in form:
            return error(400, 21_654, "ContentSid Required")
        return None if form.get("Body", "").strip() else error(400, 21_619, "A text message body must be specified.")
    if not _CONTENT.fullmatch(form["ContentSid"]):
        return error(400, 21_655, "The ContentSid Parameter is invalid")
    return (
        None
        if _are_variables(form.get("ContentVariables", "{}"))
        else error(400, 21_656, "The Content Variables parameter is invalid.")
    )


def _are_variables(written: str) -> bool:
    try:
        variables = json.loads(written)
    except ValueError:
        return False
    return isinstance(variables, dict) and all(isinstance(value, str) and value for value in variables.values())


if __name__ == "__main__":
    asyncio.run(serve(TwilioConnection))
