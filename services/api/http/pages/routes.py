"""The routes of pages and forms, as decorators of the methods that answer them.

    class JobPages(PageSet):
        section = NavSection("Jobs", "/jobs", order=20)

        @PageRoute("/jobs/{job_id:str}", template="jobs/job.html", refresh_seconds=1)
        async def show_job(self, visit: Visit) -> Values: ...

        @FormRoute("/jobs/{job_id:str}/stop", page="show_job")
        async def stop_job(self, visit: Visit) -> Moved: ...

A page's method returns what its template shows. A form's method calls the API's routes and returns
the next page. If the API refuses, the page named by `page` is shown again with the refusal and the typed values.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from services.api.http.pages.visits import Visit

_PAGE, _FORM = "page", "form"

Function = TypeVar("Function", bound=Callable[..., Awaitable[Any]])
Values = dict[str, Any]


class NavSection(Struct, frozen=True):
    """An entry of the navigation, below the heading `group`, or of the tabs of the section `under`: `path` is below
    `/ui`. `is_seen` tells to whom it is shown. Its badge counts the work of the kinds in `needs`."""

    label: str
    path: str
    order: int
    under: str = ""
    group: str = ""
    needs: tuple[str, ...] = ()
    is_seen: Callable[[Visit], bool] = lambda _: True


class PageRoute(Struct, frozen=True):
    """A page below `/ui`. `template` is `subject/name.html`: it lies in that subject's folder `pages`. The page asks
    for itself every `refresh_seconds`, never where that is 0; the value `refresh_seconds` that its method returns comes
    before this one, such as 0 for what has ended. `shared_by_roles` says that whoever has the same roles sees the same:
    then all of them share what a refresh reads."""

    path: str
    template: str
    refresh_seconds: float = 0
    shared_by_roles: bool = False

    def __call__(self, function: Function) -> Function:
        setattr(function, _PAGE, self)
        return function


class FormRoute(Struct, frozen=True):
    """The route of a form. `page` names the method of the page that contains it. With `acts`, there is one route for
    each of these verbs, at the end of `path`; the method reads `Visit.act`.

    A method that returns values shows them instead of moving on. `template` is a page of its own with them. With
    `fragment`, a preview, a script gets the fragment, and a browser without scripts gets the page.
    """

    path: str
    page: str = ""
    template: str = ""
    fragment: str = ""
    acts: tuple[str, ...] = ()

    def __call__(self, function: Function) -> Function:
        own = [replace(self, path=f"{self.path}/{act}") for act in self.acts] or [self]
        setattr(function, _FORM, [*getattr(function, _FORM, ()), *own])
        return function


class Moved(Struct, frozen=True):
    """The page that follows a form, a sentence of `SAID` that it shows, and a number for that sentence."""

    to: str
    said: str = ""
    count: int | None = None


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
    "suppressed-mail": "Suppressed by mail. Accounts of other channels still send to them.",
    "suppressed-sms": "Suppressed by SMS. Accounts of other channels still send to them.",
    "suppressed-push": "Suppressed by push. Accounts of other channels still send to them.",
    "suppressed-other": "Suppressed by the channel other. Accounts of other channels still send to them.",
    "suppressed-many": "Newly suppressed: {count}.",
    "suppression-deleted": "Lifted.",
    "forgotten": "Recipient erased from {count} messages.",
    "forgotten-some": "Recipient erased from {count} messages. There may be more: erase again.",
    "retried-of-more": "Tried again: {count}. There are more: press again to retry them.",
}
"""The sentences that a page can show after a form, by name. The address has the name, so no link can make a page say
anything else."""


class PageSet:
    """Pages that belong together. `section` is their entry in the navigation, which several sets may share. `tab` is
    their entry beside those of other subjects in one section. `glance` counts what needs attention, for the navigation,
    as far as that is known at once."""

    section: NavSection | None = None
    tab: NavSection | None = None
    glance: Callable[[], Awaitable[Mapping[str, int]]] | None = None

    def page_routes(self) -> list[tuple[PageRoute, Callable[[Visit], Awaitable[Values]]]]:
        return [(route, getattr(self, name)) for name, route in self._find_marked(_PAGE)]

    def form_routes(self) -> list[tuple[FormRoute, Callable[[Visit], Awaitable[Any]]]]:
        return [(form, getattr(self, name)) for name, forms in self._find_marked(_FORM) for form in forms]

    def page_of(self, form: FormRoute) -> tuple[PageRoute, Callable[[Visit], Awaitable[Values]]] | None:
        """The page with this form."""
        if not form.page:
            return None
        method = getattr(self, form.page)
        return getattr(method, _PAGE), method

    def _find_marked(self, kind: str) -> list[tuple[str, Any]]:
        marked = ((name, getattr(method, kind, None)) for name, method in vars(type(self)).items())
        return [(name, route) for name, route in marked if route is not None]
