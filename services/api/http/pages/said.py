"""Sentences of the frame. What a page says after a form has done its work stands here by the name that the address has,
so nobody's link makes a page say anything else."""

from http import HTTPStatus

SAID = {
    "saved": "Saved.",
    "made": "Created.",
    "deleted": "Deleted.",
    "paused": "Paused.",
    "resumed": "Resumed.",
    "stopped": "Stopped.",
    "retried": "Carillon tries it again now.",
    "retried-some": "Tried again: {count}.",
    "discarded-some": "Discarded: {count}.",
    "letters-left": "{count} could not be changed: they can only be discarded, an attempt is running, or someone else "
    "was first. The others are done.",
    "returned": "Tasks returned to their queue: {count}.",
    "purged": "Dead tasks discarded: {count}.",
    "discarded": "Discarded.",
    "fired": "It fires now.",
    "cancelled": "Cancelled.",
    "revoked": "Revoked.",
    "ended": "Ended.",
    "sent": "Sent.",
    "begun": "Started. This page shows the progress.",
    "suspended": "Suspended. Its jobs wait.",
    "activated": "It sends again.",
    "tested": "The provider accepted the test message.",
    "secret-replaced": "The provider accepted the test message. The new secret is in use.",
    "retrying": "Sending again. This page shows the progress.",
    "suppressed": "Suppressed. They receive nothing from now on.",
    "suppressed-many": "Newly suppressed: {count}.",
    "suppression-deleted": "Lifted.",
    "forgotten": "Recipient erased from {count} messages.",
    "forgotten-some": "Recipient erased from {count} messages. There may be more: erase again.",
    "published": "Published. Subscriptions receive it in a moment.",
    "retried-of-more": "Tried again: {count}. There are more: press again to retry them.",
}

REMEDIES = {
    HTTPStatus.INTERNAL_SERVER_ERROR: "The log of this process has the details, under the id of this request.",
    HTTPStatus.NOT_FOUND: "It may have been deleted, or the address is incomplete.",
    HTTPStatus.GONE: "It existed once, and is gone for good.",
    HTTPStatus.FORBIDDEN: "Ask an admin of this deployment for the role that is missing.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "Nothing changed. Send a larger file by carillon jobs create --csv FILE.",
    HTTPStatus.SERVICE_UNAVAILABLE: "Nothing is lost. Reload this page in a moment.",
    HTTPStatus.TOO_MANY_REQUESTS: "Wait a moment, then reload this page.",
}
