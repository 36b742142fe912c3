"""Firebase Cloud Messaging and Google's tokens as a process: whom they let in, what they take, and their words.

`POST /token` grants an access token to who signs as the service account does; it is no message. A message is examined
where its rule would accept it. Of the rule for all calls, the headers `Token-Status` and `Token-Text` are what a token
is refused with, and `Token-Seconds` is how long one lives.
"""

import asyncio
import base64
import json
import time
from typing import Any
from urllib.parse import parse_qs

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.hashes import SHA256

from tests.providers.http_fake import Connection, serve
from tests.providers.keys import rsa_key
from tests.providers.rules import Arrived, Rule

CLIENT = "sender@project-7.iam.gserviceaccount.com"
PROJECT = "project-7"

_SCOPE = "https://www.googleapis.com/auth/firebase.messaging"
_SKEW_SECONDS = 600
_PAYLOAD_BYTES = 4_096

GRANTED: dict[str, float] = {}
"""When which token ends."""


class FcmConnection(Connection):
    """One connection: tokens and messages, one after the other."""

    def is_message(self, beginning: bytes) -> bool:
        return not beginning.startswith(b"POST /token ")

    def serve(self, call: Arrived) -> Rule:
        told = self._notes.always.headers
        if "Token-Status" in told:
            return Rule(int(told["Token-Status"]), told.get("Token-Text", ""))
        if (fault := _grant_fault(call)) is not None:
            return Rule(400, json.dumps({"error": "invalid_grant", "error_description": fault}))
        seconds = float(told.get("Token-Seconds", "3599"))
        token = f"ya29.granted-{len(GRANTED) + 1}"
        GRANTED[token] = time.time() + seconds
        return Rule(200, json.dumps({"access_token": token, "expires_in": seconds, "token_type": "Bearer"}))

    def examine(self, call: Arrived, rule: Rule) -> Rule:
        if rule.status != 200:
            return rule
        if call.path != f"/v1/projects/{PROJECT}/messages:send":
            return Rule(404, "<!DOCTYPE html><title>Error 404 (Not Found)!!1</title>")
        if GRANTED.get(call.headers.get("authorization", "").removeprefix("Bearer "), 0) < time.time():
            return error(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
        return _message_fault(json.loads(call.body)["message"]) or rule


def error(status: int, name: str, message: str, code: str = "", fields: tuple[str, ...] = ()) -> Rule:
    """An error as FCM tells it."""
    details: list[dict[str, Any]] = []
    if code:
        details.append({"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": code})
    if fields:
        violations = [{"field": field, "description": message} for field in fields]
        details.append({"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations})
    fault = {"code": status, "message": message, "status": name, "details": details}
    return Rule(status, json.dumps({"error": fault}))


def _message_fault(message: dict[str, Any]) -> Rule | None:
    token = message.get("token", "")
    if not token or message.keys() & {"topic", "condition"}:
        return error(400, "INVALID_ARGUMENT", "Recipient of the message is not set.", "INVALID_ARGUMENT", ("message",))
    if token.startswith("bad"):
        words = "The registration token is not a valid FCM registration token"
        return error(400, "INVALID_ARGUMENT", words, "INVALID_ARGUMENT")
    if token.startswith("gone"):
        return error(404, "NOT_FOUND", "Requested entity was not found.", "UNREGISTERED")
    if token.startswith("other"):
        return error(403, "PERMISSION_DENIED", "SenderId mismatch", "SENDER_ID_MISMATCH")
    for name, value in message.get("data", {}).items():
        if not isinstance(value, str):
            return error(400, "INVALID_ARGUMENT", "Invalid value (TYPE_STRING)", "", (f"message.data[{name}].value",))
    if len(json.dumps(message.get("data", {}))) > _PAYLOAD_BYTES:
        return error(400, "INVALID_ARGUMENT", "Request contains an invalid argument.")
    return None


def _grant_fault(call: Arrived) -> str | None:
    form = {name: values[0] for name, values in parse_qs(call.body).items()}
    if form.get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer":
        return "Invalid grant_type"
    content, _, signature = form.get("assertion", "").rpartition(".")
    header, claims = (json.loads(_decode(part)) for part in content.split("."))
    try:
        rsa_key().public_key().verify(_decode(signature), content.encode(), padding.PKCS1v15(), SHA256())
    except InvalidSignature:
        return "Invalid JWT Signature."
    if header["alg"] != "RS256" or claims["iss"] != CLIENT or claims["scope"] != _SCOPE:
        return "Invalid grant: account not found"
    if claims["aud"] != f"http://{call.headers['host']}/token":
        return "Invalid JWT: Failed audience check"
    if abs(claims["iat"] - time.time()) > _SKEW_SECONDS or claims["exp"] - claims["iat"] > 3_600:
        return "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe."
    return None


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


if __name__ == "__main__":
    asyncio.run(serve(FcmConnection))
