"""Transition tables: for each status of a document, the statuses that may follow it. A store makes the filter of every
move from its table, so that only moves of the table are made."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

AnyStatus = TypeVar("AnyStatus", bound=StrEnum)


def sources(table: Mapping[AnyStatus, frozenset[AnyStatus]], to: AnyStatus) -> frozenset[AnyStatus]:
    return frozenset(status for status, targets in table.items() if to in targets)


def final(table: Mapping[AnyStatus, frozenset[AnyStatus]]) -> frozenset[AnyStatus]:
    return frozenset(status for status, targets in table.items() if not targets)


def source_of(table: Mapping[AnyStatus, frozenset[AnyStatus]], source: AnyStatus, to: AnyStatus) -> AnyStatus:
    """This source, for a move that has no other one."""
    if to not in table[source]:
        raise ValueError(f"{to} does not follow {source}")
    return source
