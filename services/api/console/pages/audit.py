"""`/ui/audit`: who did what, and what it changed."""

from collections.abc import Mapping, Sequence
from typing import Any

from services.api.http.pages.routes import NavSection, PageRoute, PageSet, Values
from services.api.http.pages.visits import Visit

_FILTERS = ("act", "on", "by")

Record = Mapping[str, Any]


class AuditPages(PageSet):
    """The audit."""

    section = NavSection("Audit", "/audit", order=310, is_seen=lambda visit: visit.caller.is_admin)

    @PageRoute("/audit", template="console/audit.html")
    async def show_audit(self, visit: Visit) -> Values:
        """Acts, the newest first; of one app for who owns it."""
        wanted = {name: visit.query(name) for name in _FILTERS}
        app = visit.query("app")
        found = await (visit.read_list("/apps/{}/audit", app, **wanted) if app else visit.read_list("/audit", **wanted))
        return {
            "title": "Audit",
            "acts": [dict(record) | {"changes": list_changes(record)} for record in found.value],
            "next": found.next,
            "wanted": wanted | {"app": app},
        }


def list_changes(record: Record) -> Sequence[tuple[str, Any, Any]]:
    """Each field that changed: its name, as it was, and as it is; `None` for what was not there."""
    before, after = record["before"], record["after"]
    return [(name, before.get(name), after.get(name)) for name in {**before, **after}]
