"""Kinds of things that can be brought: each offers how its things are read, found here, and written."""

from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from carillon_imports.verdicts import AS_BEFORE, BROUGHT, ImportVerdict, digest
from shared.store.documents import Identified

R_contra = TypeVar("R_contra", bound=Identified, contravariant=True)
T = TypeVar("T", bound=Identified)

Reasons = dict[str, str]
"""Why things cannot be added, by id."""


class ImportedKind(Protocol[R_contra, T]):
    """One kind of things to bring. `name` is what the source calls its table or list."""

    name: str

    def label(self, row: R_contra) -> str:
        """The name for people of the thing in this row."""

    def shown_id(self, row: R_contra) -> str:
        """By what the thing in this row can be told apart from others of its label."""

    def read(self, row: R_contra) -> T:
        """The row's value. Raises `Refused` where it cannot come."""

    def digest(self, value: T) -> str:
        """The digest of the value: a later version has another one."""

    def note(self, value: T) -> str:
        """The note that is kept of a value once it is here as it is there."""

    def verdict_if_new(self, value: T) -> ImportVerdict:
        """The verdict on one that is new here."""

    def verdict_if_started(self, row: R_contra) -> ImportVerdict:
        """The verdict on one that was brought to start here."""

    def behind(self, here: T, there: T) -> bool:
        """Whether one with the same digest still lacks something."""

    async def here(self, ids: Sequence[str]) -> dict[str, T]:
        """Those of these things that are here, by id."""

    async def find_refused(self, new: Sequence[T]) -> Reasons:
        """Which of these, whose ids are free, cannot be added."""

    async def add(self, new: Sequence[T]) -> Reasons:
        """Insert these; tells which were not, because they were taken meanwhile or are too many."""

    async def replace(self, here: T, there: T) -> bool:
        """Update one; `False` when it was changed meanwhile. Raises `Refused` where it stays as it is here."""

    def remember(self, present: Iterable[T]) -> None:
        """Remember that these are here now, or would be after a dry run."""


class PlainKind(Generic[R_contra, T]):
    """The base of most kinds. The fields that are `left_out` say nothing of what a thing is."""

    left_out: tuple[str, ...] = ()

    def shown_id(self, row: R_contra) -> str:
        return row.id

    def digest(self, value: Struct) -> str:
        return digest(value, without=self.left_out)

    def note(self, value: Struct) -> str:
        return self.digest(value)

    def verdict_if_new(self, value: T) -> ImportVerdict:
        return BROUGHT

    def verdict_if_started(self, row: R_contra) -> ImportVerdict:
        return AS_BEFORE

    def behind(self, here: object, there: object) -> bool:
        return False


def taken_meanwhile(ids: Iterable[str]) -> Reasons:
    """That these were taken here since they were looked for."""
    return dict.fromkeys(ids, "its id or name was taken here during the import: import again")
