"""Sentences of the frame. What a page says after a form has done its work stands here by the name that the address has,
so nobody's link makes a page say anything else."""

from http import HTTPStatus

SAID = {
    "saved": "Saved.",
    "made": "Made.",
    "deleted": "Deleted.",
    "paused": "Paused.",
    "resumed": "Resumed.",
    "stopped": "Stopped.",
    "retried": "It is tried again now.",
    "retried-some": "Tried again now: {count}.",
    "discarded-some": "Discarded: {count}.",
    "letters-left": "{count} could not be: their schedules are gone, they are being attempted, or somebody was first. "
    "The others are done.",
    "returned": "Tasks that are back in their queue: {count}.",
    "purged": "Dead tasks that are discarded: {count}.",
    "discarded": "Discarded.",
    "fired": "It fires now.",
    "cancelled": "Cancelled.",
    "revoked": "Revoked.",
    "ended": "Ended.",
    "sent": "Sent.",
    "begun": "It has begun. This page shows how far it is.",
    "suspended": "Suspended. Its jobs wait.",
    "activated": "It sends again.",
    "tested": "The provider has taken the test message.",
    "secret-replaced": "The provider has taken the test message: the new secret counts from now on.",
    "retrying": "They are sent again. This page shows how far it is.",
    "suppressed": "They get nothing more.",
    "suppressed-many": "Done: {count} get nothing more who did before.",
    "suppression-deleted": "Lifted.",
    "forgotten": "{count} messages have forgotten whom they were to.",
    "forgotten-some": "{count} messages have forgotten whom they were to. There may be more: forget again.",
    "published": "Published. Subscriptions get it in a moment.",
    "retried-of-more": "Tried again now: {count}. There are more: press once more for them.",
}

REMEDIES = {
    HTTPStatus.INTERNAL_SERVER_ERROR: "It is in the log of this process, with the id of this request.",
    HTTPStatus.NOT_FOUND: "It may have been deleted, or the address is not complete.",
    HTTPStatus.GONE: "It was here once, and is gone for good.",
    HTTPStatus.FORBIDDEN: "Ask an admin of this deployment for the role that is missing.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "Nothing was changed. Send less at once; a larger file "
    "of users goes by the command: carillon jobs create --csv FILE.",
    HTTPStatus.SERVICE_UNAVAILABLE: "Nothing is lost. Reload this page in a moment.",
    HTTPStatus.TOO_MANY_REQUESTS: "Wait a moment, and reload this page.",
}
