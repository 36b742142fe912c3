"""Programs as finite automata: a generator cannot be copied or compared, but where it stands can.

What a program does next depends on its position and its locals alone. So each (position, locals) that is met gets a
number, and stepping is a look-up by (number, reply), filled in the first time by running the generator up to there.
"""

from collections.abc import Hashable
from functools import cache
from typing import Any, NamedTuple

from tests.domain.protocol.feeding import Program
from tests.domain.protocol.programs import PROGRAMS
from tests.domain.protocol.world import Rules


class Automaton:
    """One kind of actor under one set of rules. State 0 is the beginning, and what the end leads back to."""

    def __init__(self, kind: str, rules: Rules) -> None:
        self._kind, self._rules = kind, rules
        self._replies: list[tuple[Any, ...]] = []
        self._wants: list[NamedTuple] = []
        self._numbers: dict[Hashable, int] = {}
        self._table: dict[tuple[int, Any], int] = {}
        self._number((), *self._run(()))

    def wants(self, state: int) -> NamedTuple:
        """The operation that the program waits for."""
        return self._wants[state]

    def advance(self, state: int, reply: Any) -> int:
        """Where the reply leads."""
        known = self._table.get((state, reply))
        if known is None:
            known = self._table[state, reply] = self._step(state, reply)
        return known

    def _step(self, state: int, reply: Any) -> int:
        replies = (*self._replies[state], reply)
        try:
            return self._number(replies, *self._run(replies))
        except StopIteration:
            return 0

    def _run(self, replies: tuple[Any, ...]) -> tuple[Program, NamedTuple]:
        program = PROGRAMS[self._kind](self._rules)
        wants = next(program)
        for reply in replies:
            wants = program.send(reply)
        return program, wants

    def _number(self, replies: tuple[Any, ...], program: Program, wants: NamedTuple) -> int:
        number = self._numbers.setdefault(position(program), len(self._wants))
        if number == len(self._wants):
            self._wants.append(wants)
            self._replies.append(replies)
        return number


def position(program: Program) -> Hashable:
    """Where a suspended generator, and each one that it waits for, stands, and what it knows."""
    found = []
    inner: Any = program
    while inner is not None:
        frame = inner.gi_frame
        found.append((frame.f_code.co_name, frame.f_lasti, tuple(frame.f_locals.items())))
        inner = inner.gi_yieldfrom
    return tuple(found)


@cache
def automaton(kind: str, rules: Rules) -> Automaton:
    """The one automaton of this kind and these rules."""
    return Automaton(kind, rules)
