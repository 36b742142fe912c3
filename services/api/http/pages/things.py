"""Pages by declaration: a list of the things of a namespace, and one of them. The templates of the frame draw both: a
`Cell` says how a value is written, a `Move` is an act that a reader has.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal

from msgspec import Struct

from services.api.http.pages.html import query_of
from services.api.http.pages.namespaces import EVERY, chosen_namespace, read_choice, read_names, tell_namespace
from services.api.http.pages.routes import FormRoute, Moved, NavSection, PageRoute, PageSet, Values, act_on_chosen
from services.api.http.pages.visits import ApiAnswer, ApiProblem, Visit, address

Kind = Literal["text", "wide", "code", "short", "ago", "full", "number", "span", "state", "link"]


class Cell(Struct, frozen=True):
    """A value of a thing: that of `field`, or the words of `tell`. A `link` leads to the page `to`, whose `{}` takes
    the field `by`. A text has at most `most` characters; a `personal` one is hidden from viewers."""

    label: str
    field: str = ""
    kind: Kind = "text"
    tell: Callable[[Any], Any] | None = None
    to: str = ""
    by: str = ""
    is_linked: Callable[[Any], bool] = lambda _: True
    most: int = 1_000
    personal: bool = False

    @property
    def head(self) -> str:
        return f"#{self.label}" if self.kind == "number" else self.label

    def of(self, thing: Mapping[str, Any]) -> Any:
        return thing.get(self.field) if self.tell is None else self.tell(thing)

    def link(self, thing: Mapping[str, Any]) -> str:
        return address(self.to, thing[self.by or self.field])


class Filter(Struct, frozen=True):
    """A parameter of the API to type, or to choose of `values`."""

    name: str
    label: str
    like: str = ""
    values: tuple[str, ...] = ()

    @property
    def choices(self) -> list[tuple[str, str]]:
        return [("", "any"), *((value, value) for value in self.values)]


class Move(Struct, frozen=True):
    """A button with a question, and the sentence of `SAID` afterwards. `says` tells what happens. Only things for which
    `is_possible` have it. The page of the thing follows, or the list if the move `ends` the thing."""

    verb: str
    label: str
    says: str | Callable[[Any], str]
    said: str
    is_bad: bool = False
    ends: bool = False
    is_possible: Callable[[Any], bool] = lambda _: True
    key: Callable[[Any], str] = lambda _: ""
    method: str = "POST"


async def _read_nothing(*_: object) -> Values:
    return {}


@dataclass(kw_only=True)
class DeclaredPage(PageSet, ABC):
    """One page. A `template` that extends the one of the frame may show the values of `read_more` too."""

    section: NavSection
    tab: NavSection | None = None
    template: str
    read_more: Callable[[Visit, Any], Awaitable[Values]] = _read_nothing

    @property
    def api(self) -> str:
        """The path of the things in the API, and of their list."""
        return self.section.path

    @property
    def path(self) -> str:
        return self.api

    @property
    @abstractmethod
    def verbs(self) -> Sequence[str]:
        """The forms of the page."""

    @abstractmethod
    async def show(self, visit: Visit) -> Values: ...

    @abstractmethod
    async def act(self, visit: Visit) -> Moved: ...

    def page_routes(self) -> list[tuple[PageRoute, Callable[[Visit], Awaitable[Values]]]]:
        return [(PageRoute(self.path, self.template, refresh_seconds=5), self.show)]

    def form_routes(self) -> list[tuple[FormRoute, Callable[[Visit], Awaitable[Any]]]]:
        return [(FormRoute(f"{self.path}/{verb}"), self.act) for verb in self.verbs]

    def page_of(self, form: FormRoute) -> tuple[PageRoute, Callable[[Visit], Awaitable[Values]]]:
        return self.page_routes()[0]


@dataclass(kw_only=True)
class ListPage(DeclaredPage):
    """A list of the API with filters. With `discard`, rows can be chosen, and retried or discarded; the text says what
    discarding does. `bulk` are the acts on all that match, and `new` is the button that leads to a form. Filters
    and these acts need one namespace if `needs_one`."""

    template: str = "frame/list.html"
    cells: tuple[Cell, ...]
    heading: str
    empty: str
    filters: tuple[Filter, ...] = ()
    needs_one: bool = False
    new: tuple[str, str] | None = None
    discard: str = ""
    bulk: tuple[str, ...] = ()

    @property
    def verbs(self) -> Sequence[str]:
        return ("retry", "discard") if self.discard else ()

    async def show(self, visit: Visit) -> Values:
        chosen = chosen_namespace(visit)
        asked = {each.name: visit.query(each.name) for each in self.filters}
        (found, wrong), choice, also = await visit.read_all(
            self._find(visit, chosen, asked), read_choice(visit, chosen), self.read_more(visit, chosen)
        )
        values: Values = {
            "title": self.section.label,
            "page": self,
            "choice": choice,
            "things": found.value,
            "next": found.next,
            "asked": asked | {"namespace": chosen},
            "wrong": wrong,
            "is_every": chosen == EVERY,
            "is_filtered": any(asked.values()),
        }
        return values | also  # type: ignore[no-any-return]

    async def act(self, visit: Visit) -> Moved:
        """Retry or discard the chosen rows. A value is a namespace and an id."""

        async def act(chosen: str) -> None:
            namespace, _, id = chosen.partition(" ")
            await visit.send("POST", f"{self.api}/{{}}/{visit.act}", id, query={"namespace": namespace})

        asked = {name: visit.query(name) for name in ("namespace", *(each.name for each in self.filters))}
        return await act_on_chosen(visit, self.api + query_of(**asked), act)

    async def _find(self, visit: Visit, chosen: str, asked: Mapping[str, str]) -> tuple[ApiAnswer, ApiProblem | None]:
        """A page of things; none, with the mistake, if a filter is wrong."""
        try:
            return await visit.read_list(self.api, namespace=chosen, **asked), None
        except ApiProblem as problem:
            if problem.status != HTTPStatus.UNPROCESSABLE_ENTITY or problem.field not in {"namespace", *asked}:
                raise
            return ApiAnswer([]), problem


@dataclass(kw_only=True)
class ThingPage(DeclaredPage):
    """One thing, whose id is the `parameter` at the end of the address: its facts and moves. `name` is the field of its
    title, `state` the word beside it."""

    template: str = "frame/thing.html"
    parameter: str
    name: str
    facts: tuple[Cell, ...]
    moves: tuple[Move, ...]
    state: Callable[[Any], str]
    has_edit: bool = False

    @property
    def path(self) -> str:
        return f"{self.api}/{{{self.parameter}:str}}"

    @property
    def verbs(self) -> Sequence[str]:
        return [move.verb for move in self.moves]

    async def show(self, visit: Visit) -> Values:
        namespace = visit.query("namespace") or visit.caller.namespace
        thing, names = await visit.read_all(
            visit.read(f"{self.api}/{{}}", visit.path(self.parameter), namespace=namespace), read_names(visit)
        )
        values: Values = {
            "title": thing[self.name],
            "page": self,
            "thing": thing,
            "path": address(f"{self.api}/{{}}", visit.path(self.parameter)),
            "namespace": thing.get("namespace", namespace),
            "whose": tell_namespace(thing.get("namespace", namespace), names),
            "is_own": namespace == visit.caller.namespace,
        }
        return values | await self.read_more(visit, thing)

    async def act(self, visit: Visit) -> Moved:
        [move] = [each for each in self.moves if each.verb == visit.act]
        namespace, id = visit.query("namespace"), visit.path(self.parameter)
        path = f"{self.api}/{{}}" + ("" if move.method == "DELETE" else f"/{move.verb}")
        await visit.send(move.method, path, id, query={"namespace": namespace})
        to = self.api if move.ends else address(f"{self.api}/{{}}", id)
        return Moved(to + query_of(namespace=namespace or visit.caller.namespace), move.said)
