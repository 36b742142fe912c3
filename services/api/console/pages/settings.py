"""`/ui/settings`: what this process was told."""

from collections.abc import Mapping, Sequence
from typing import Any

from services.api.http.pages.routes import NavSection, PageRoute, PageSet, Values
from services.api.http.pages.visits import Visit

_SETTINGS = "/settings"

Setting = Mapping[str, Any]


class SettingsPages(PageSet):
    """The settings."""

    section = NavSection("Settings", _SETTINGS, order=320, is_seen=lambda visit: visit.caller.is_admin)

    @PageRoute("/settings", template="console/settings.html")
    async def show_settings(self, visit: Visit) -> Values:
        """All settings, or those that are not as by default, or that a word is in."""
        settings = await visit.read(_SETTINGS)
        word, changed_only = visit.query("q").lower(), bool(visit.query("changed"))
        shown = [
            setting
            for setting in settings
            if word in f"{setting['name']} {setting['sentence']}".lower()
            if not changed_only or setting["value"] != setting["default"]
        ]
        return {
            "title": "Settings",
            "groups": group_settings(shown),
            "changed": sum(setting["value"] != setting["default"] for setting in settings),
            "word": visit.query("q"),
            "changed_only": changed_only,
        }


def group_settings(settings: Sequence[Setting]) -> dict[str, list[Setting]]:
    """The settings of each section, in their order."""
    sections: dict[str, list[Setting]] = {}
    for setting in settings:
        sections.setdefault(str(setting["name"]).partition(".")[0], []).append(setting)
    return sections
