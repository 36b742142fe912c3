"""The data that subjects have stored for an app, and how each lets go of its own when the app is deleted.

A subject brings its own (`Part.belongings`): no one place knows them all.
"""


class Belongings:
    """The data that one subject has stored for apps. A subject overrides what it has; the rest is empty here. Each may
    be asked for again. All raise `Unavailable`."""

    async def check_idle(self, app_id: str) -> None:
        """Raise `Conflict` where the app has work that is not finished."""

    async def withdraw(self, app_id: str) -> None:
        """Let go of what would make new work for an app that takes none any more."""

    async def remove_at_once(self, app_id: str) -> None:
        """Remove what must not wait: what may send for the app, and what its work begins with."""

    async def remove_some(self, app_id: str) -> bool:
        """Remove some of the rest; `False` once nothing is left."""
        return False
