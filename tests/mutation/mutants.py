"""Mutants of a module: its code with one small fault each, as a tired programmer makes them.

Left alone are annotations, decorators, assertions, docstrings and sentences for people: no rule is in them. Values of a
plain `Enum` are too, as its members are told apart by their names.
"""

import ast
from collections.abc import Iterator
from typing import Any, NamedTuple

_INSTEAD: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr,
}  # fmt: skip
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
_UNTOUCHED_FIELDS = {"annotation", "returns", "decorator_list", "format_spec"}
_UNTOUCHED_KEYWORDS = {"frozen", "kw_only", "gc", "eq", "omit_defaults", "strict"}
_COUNTED_UP_TO = 100


class Mutant(NamedTuple):
    """Its fault is in the module's tree until the next one is asked for."""

    line: int
    before: str
    after: str


def mutants(tree: ast.Module) -> Iterator[Mutant]:
    """Put one fault after the other into the tree."""
    for node, parent, field, index in list(_places(tree)):
        shown = node if isinstance(node, (ast.expr, ast.stmt, ast.pattern)) else parent
        for fault in [*_faults(node), *_faults_of_condition(node, field)]:
            before = ast.unparse(shown)
            _put(fault, parent, field, index)
            ast.fix_missing_locations(ast.copy_location(fault, shown))
            yield Mutant(getattr(shown, "lineno", 0), before, ast.unparse(fault if shown is node else parent))
            _put(node, parent, field, index)


def _put(node: ast.AST, parent: ast.AST, field: str, index: int | None) -> None:
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


def _places(parent: ast.AST) -> Iterator[tuple[ast.AST, ast.AST, str, int | None]]:
    if isinstance(parent, ast.ClassDef) and [ast.unparse(base) for base in parent.bases] == ["Enum"]:
        return
    for field, value in ast.iter_fields(parent):
        for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if field not in _UNTOUCHED_FIELDS and isinstance(node, ast.AST) and not _says_no_rule(node):
                yield node, parent, field, index
                yield from _places(node)


def _says_no_rule(node: ast.AST) -> bool:
    match node:
        case ast.Assert() | ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
            return True
        case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar")) | ast.Subscript(slice=ast.Tuple())):
            return True
        case ast.keyword(arg=name):
            return name in _UNTOUCHED_KEYWORDS
        case _:
            return False


def _faults_of_condition(node: ast.AST, field: str) -> Iterator[ast.AST]:
    if field in {"test", "ifs"} and isinstance(node, ast.expr):
        if not isinstance(node, (ast.Compare, ast.UnaryOp)):
            yield ast.UnaryOp(ast.Not(), node)
        if field == "ifs":
            yield ast.Constant(value=True)


def _faults(node: ast.AST) -> Iterator[ast.AST]:
    if type(node) in _INSTEAD:
        yield _INSTEAD[type(node)]()
    match node:
        case ast.BoolOp(op, values):
            yield from (rest[0] if len(rest) == 1 else ast.BoolOp(op, rest) for rest in _without_one(values))
        case ast.MatchOr(patterns):
            yield from (rest[0] if len(rest) == 1 else ast.MatchOr(rest) for rest in _without_one(patterns))
        case ast.UnaryOp(ast.Not() | ast.USub() | ast.Invert(), operand):
            yield operand
        case ast.Constant(value):
            yield from (ast.Constant(other) for other in _other_values(value))
        case ast.Name(id, ast.Load()) if id in _NAMES:
            yield ast.Name(_NAMES[id], ast.Load())
        case ast.Set(elements) if len(elements) > 1:
            yield from map(ast.Set, _without_one(elements))
        case ast.Set():
            yield ast.Call(ast.Name("set", ast.Load()), [], [])
        case ast.Tuple(elements, ast.Load()) | ast.List(elements, ast.Load()) if len(elements) > 1:
            yield from (type(node)(rest, ast.Load()) for rest in _without_one(elements))
        case ast.Expr() | ast.Raise() | ast.AugAssign() | ast.Continue() | ast.Return(None):
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.If(orelse=[]) | ast.While(orelse=[]):
            yield ast.Pass()
        case ast.Assign(targets=[ast.Name(id)], value=value) if id in {
            inner.id for inner in ast.walk(value) if isinstance(inner, ast.Name)
        }:
            yield ast.Pass()
        case _:
            pass


def _without_one(items: list[Any]) -> Iterator[list[Any]]:
    return (items[:place] + items[place + 1 :] for place in range(len(items)))


def _other_values(value: object) -> Iterator[Any]:
    match value:
        case bool():
            yield not value
        case int() | float() if value <= _COUNTED_UP_TO:
            yield from (value + 1, value - 1)
        case int() | float():  # who counts to a large number seldom cares for one more
            yield from (value * 2, value // 2)
        case str() if value and " " not in value:
            yield value + "x"
        case bytes() if value:
            yield value + b"x"
        case _:
            pass
