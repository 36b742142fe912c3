"""A valid body for each schema of the API, and a value for each query parameter that an operation must have."""

import secrets
from collections.abc import Callable, Mapping
from typing import Any

FAR_NS = 6_000_000_000 * 10**9  # in 2160: nothing that the suite makes comes due
FAR = "2160-01-01T00:00:00Z"

QUERY = {
    "template": "like",
    "part": "1",
    "expires": "1",
    "signature": "none",
    "recipient": "ana@example.com",
    "user": "u1",
    "address": "ana@example.com",
}
ASKED_ALSO = {"recipient"}
"""Query parameters that are not required, and without which there is nothing to see."""


def app(ids: Mapping[str, str]) -> dict[str, Any]:
    fresh = f"g{secrets.token_hex(4)}"
    return {"name": ids.get("appName", fresh), "bundleId": f"com.example.{fresh}"}


def template(ids: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": f"t{secrets.token_hex(4)}",
        "locale": "en",
        "body": {"alert": "{{who}}"},
        "defaults": {"who": ids["mark"]},
    }


def job(ids: Mapping[str, str]) -> dict[str, Any]:
    return {
        "service": "apns",
        "startsAt": FAR_NS,
        "context": {"who": ids["mark"]},
        "metadata": {"about": ids["mark"]},
        "filters": {"locale": "en"},
        "controlGroup": 0.1,
    }


def localized(ids: Mapping[str, str]) -> dict[str, Any]:
    return job(ids) | {"localized": True, "pastTimeStrategy": "skip"}


def credential(ids: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": f"{ids['mark']}-{secrets.token_hex(4)}",
        "kind": "sandbox",
        "rate": 5,
        "testRecipient": f"{ids['mark']}@example.com",
        "testContent": {"text": ids["mark"]},
        "retry": {"attempts": 2},
    }


def suppression(ids: Mapping[str, str]) -> dict[str, Any]:
    return {"channel": "mail", "address": f"{secrets.token_hex(4)}@{ids['mark']}.example.com", "list": "news"}


def single(ids: Mapping[str, str]) -> dict[str, Any]:
    to = f"{secrets.token_hex(4)}@{ids['mark']}.example.com"
    return {"credential": ids["credentialId"], "to": to, "body": {"text": ids["mark"]}, "sendAt": FAR}


def user(ids: Mapping[str, str]) -> dict[str, Any]:
    return {"email": f"{secrets.token_hex(4)}@{ids['mark']}.example.com", "isAdmin": False, "allowedApps": []}


def token(ids: Mapping[str, str]) -> dict[str, Any]:
    return {"name": ids["mark"], "isAdmin": False, "allowedApps": [ids["appId"]]}


def schedule(ids: Mapping[str, str]) -> dict[str, Any]:
    callback = {"type": "rabbitmq", "data": {"queue": "orders", "payload": {"about": ids["mark"]}, "headers": {}}}
    return {
        "schedules": [FAR],
        "callback": callback,
        "labels": {"team": "push"},
        "retry": {"attempts": 3},
    }


def keyed(ids: Mapping[str, str]) -> dict[str, Any]:
    return schedule(ids) | {"key": f"k-{secrets.token_hex(6)}"}


def bulk_action(ids: Mapping[str, str]) -> dict[str, Any]:
    return {"act": "schedule.pause", "filter": {"prefix": ids["key"]}, "reason": ids["mark"], "atMost": 10}


def topic_of(mark_of: Mapping[str, str]) -> str:
    """The name of a tenant's topic: it has no digits."""
    return "t_" + mark_of["mark"].translate(str.maketrans("0123456789", "ghijklmnop"))


def published_event(ids: Mapping[str, str]) -> dict[str, Any]:
    return {"type": "create", "url": f"https://example.com/{ids['mark']}", "timestamp": 1, "data": {"about": "x"}}


def published_subscription(ids: Mapping[str, str]) -> dict[str, Any]:
    callback = f"https://{ids['mark']}.example.com/events"
    return {"topics": [topic_of(ids)], "callback": callback, "uuid": "me", "timeout": 1, "max": 5}


def bus_event(ids: Mapping[str, str]) -> dict[str, Any]:
    return {"type": "order.paid", "url": f"https://example.com/{ids['mark']}", "data": {"about": ids["mark"]}}


def native_subscription(ids: Mapping[str, str]) -> dict[str, Any]:
    return {"callback": f"https://{ids['mark']}.example.com/events", "topics": ["orders"], "max_events": 5}


def csv(ids: Mapping[str, str]) -> bytes:
    return f"id\n{ids['mark']}\n".encode()


VALID: dict[str, Callable[[Mapping[str, str]], Any]] = {
    "AppBody": app,
    "TemplateBody": template,
    "TemplateBodies": template,  # one or several
    "JobBody": job,
    "UserBody": user,
    "TokenBody": token,
    "CredentialBody": credential,
    "CredentialChange": lambda ids: {"rate": 7, "order": "shares", "testRecipient": f"{ids['mark']}@example.com"},
    "RetriedBody": lambda _: {"states": ["failed"]},
    "ReplayBody": lambda _: {"from": "2020-01-01T00:00:00Z", "topics": ["orders"]},
    "SecretBody": lambda _: {"secret": {}},
    "SuppressionBody": suppression,
    "SuppressionBody[]": lambda ids: [suppression(ids), suppression(ids)],
    "SingleBody": single,
    "SingleBody[]": lambda ids: [single(ids), single(ids)],
    "ScheduleBody": schedule,
    "AnchorBody": lambda _: {"anchor": FAR},
    "CalendarBody": lambda _: {"dates": ["2160-01-01"]},
    "BackfillBody": lambda _: {"from": "2020-01-01T00:00:00Z", "to": "2020-01-01T00:00:00Z"},
    "MoveBody": lambda _: {"labels": ["about:nothing"], "by": "+1d"},
    "ScheduleBody[]": lambda ids: [keyed(ids), keyed(ids)],
    "TrialBody": lambda ids: {"name": "like", "context": {"who": ids["mark"]}},
    "RotationBody": lambda _: {"overlapSeconds": 3_600},
    "BulkActionBody": bulk_action,
    "UploadCompletion": lambda ids: {"bytes": len(csv(ids))},
    "text/csv": csv,
    "BusTopicBody": lambda ids: {"description": ids["mark"]},
    "BusEventBodies": bus_event,  # one or several
    "PublishedEventBody": published_event,
    "PublishedSubscriptionBody": published_subscription,
    "EventSubscriptionBody": native_subscription,
    "BusRetryFilter": lambda ids: {"key": ids["key"]},
    "SecretRotationBody": lambda _: {"keep_hours": 1},
    "ApiTokenBody": lambda ids: {"name": ids["mark"], "token": f"{ids['mark']}-{secrets.token_hex(4)}"},
    "RetryFilter": lambda ids: {"key": ids["key"]},
}
