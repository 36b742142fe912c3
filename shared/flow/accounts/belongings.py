"""The data that subjects have stored for an app, and how each removes it when the app is deleted.

Each subject brings its own (`Part.belongings`).
"""


class Belongings:
    """The data that one subject has stored for apps. A subject overrides the steps that it needs. Each step is safe to
    repeat."""

    async def check_idle(self, app_id: str) -> None:
        """Raise `Conflict` if the app has unfinished work."""

    async def withdraw(self, app_id: str) -> None:
        """Remove data that would make new work for an app that accepts none."""

    async def remove_at_once(self, app_id: str) -> None:
        """Remove data that must not wait: data that may send for the app, and that its work begins with."""

    async def remove_some(self, app_id: str) -> bool:
        """Remove some of the rest; `False` once nothing is left."""
        return False
