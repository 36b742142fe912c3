"""Kinds of things to import: each can read its things, find them here, and write them."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from carillon_imports.verdicts import AS_BEFORE, BROUGHT, ImportVerdict, digest
from shared.store.documents import Identified

R_contra = TypeVar("R_contra", bound=Identified, contravariant=True)
T = TypeVar("T", bound=Identified)

Reasons = dict[str, str]
"""Reasons why things cannot be added, by id."""


class ImportedKind(Protocol[R_contra, T]):
    """One kind of things to import, and the base of all kinds. `name` is the source's table or list. The digest ignores
    the fields in `left_out`."""

    name: str
    left_out: tuple[str, ...] = ()

    def label(self, row: R_contra) -> str:
        """The display name of the thing in this row."""

    def shown_id(self, row: R_contra) -> str:
        """Distinguishes the thing in this row from others with the same label."""
        return row.id

    def read(self, row: R_contra) -> T:
        """The row's value. Raises `Refused` if it cannot be imported."""

    def digest(self, value: T) -> str:
        """Differs for a later version of the value."""
        return digest(value, without=self.left_out)

    def note(self, value: T) -> str:
        """The note that is stored once the value here equals that of the source."""
        return self.digest(value)

    def verdict_if_new(self, value: T) -> ImportVerdict:
        """The verdict on a thing that is new here."""
        return BROUGHT

    def verdict_if_started(self, row: R_contra) -> ImportVerdict:
        """The verdict on a job that was imported to start here."""
        return AS_BEFORE

    def behind(self, here: T, there: T) -> bool:
        """Whether the thing here still lacks something despite the same digest."""
        return False

    async def here(self, ids: Sequence[str]) -> dict[str, T]:
        """The existing things among these, by id."""

    async def find_refused(self, new: Sequence[T]) -> Reasons:
        """The new things that cannot be added although their ids are free."""
        return {}

    async def add(self, new: Sequence[T]) -> Reasons:
        """Insert things; returns those that were not, because their id was taken meanwhile or there are too many."""

    async def replace(self, here: T, there: T) -> bool:
        """Update a thing; `False` if it was changed meanwhile. Raises `Refused` if it has to stay."""

    def remember(self, present: Iterable[T]) -> None:
        """Remember things that exist here now, or would after a dry run, if a later kind refers to them."""
        return


def taken_meanwhile(ids: Iterable[str]) -> Reasons:
    """The reason for things that were taken here since they were looked up."""
    return dict.fromkeys(ids, "its id or name was taken here during the import: import again")
