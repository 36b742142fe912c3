"""`/ui/messages/{app}/send`: one message to one recipient."""

import uuid

from services.api.http.pages.apps import require_app
from services.api.http.pages.routes import FormRoute, Moved, PageRoute, PageSet, Values
from services.api.http.pages.typed import read_object
from services.api.http.pages.visits import Visit, address
from services.api.messages.pages.accounts import SECTION

_PAGE = "/messages/{app_id:str}/send"
_NAMES_SHOWN = 200


class SendPages(PageSet):
    """A form that sends one message."""

    @PageRoute(_PAGE, template="messages/send.html", section=SECTION)
    async def show_send_form(self, visit: Visit) -> Values:
        """The form."""
        app_id = visit.path("app_id")
        app, accounts, templates = await visit.read_all(
            require_app(visit, app_id),
            visit.read("/apps/{}/credentials", app_id, limit=_NAMES_SHOWN),
            visit.read("/apps/{}/templates", app_id, limit=_NAMES_SHOWN),
        )
        return {
            "title": "Send one message",
            "app": app,
            "accounts": accounts,
            "templates": sorted({template["name"] for template in templates}),
            "chosen": visit.read_field("credential") or visit.query("credential"),
            "key": visit.read_field("key") or str(uuid.uuid4()),
        }

    @FormRoute(_PAGE, page="show_send_form")
    async def send_message(self, visit: Visit) -> Moved:
        """Send it."""
        given = {
            "credential": visit.read_field("credential"),
            "to": visit.read_field("to"),
            "template": visit.read_field("template"),
            "body": read_object(visit.form, "body"),
            "locale": visit.read_field("locale"),
            "parameters": read_object(visit.form, "parameters"),
            "list": visit.read_field("list"),
            "transactional": bool(visit.read_field("transactional")),
        }
        body = {name: value for name, value in given.items() if value not in (None, "", {})}
        message = await visit.send("POST", "/apps/{}/messages", visit.path("app_id"), body=body)
        return Moved(address("/messages/{}/messages/{}", visit.path("app_id"), message["id"]), "sent")
