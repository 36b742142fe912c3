"""`python -m tests.mutation [PATH | PATH:LINE ...]`: which faults in the rules do their tests not find?

A fault in a function is looked for by the tests that call it. One that stands outside of functions is looked for by all
tests that import its module, or one that imports it, or call a function of it. Each mutant is tried in a process of its
own. It survives if all its tests pass. If they need many times as long as without it, by the processor's time, it is
out of time: found as well.
"""

import ast
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.mutation.mutants import mutants
from tests.mutation.runs import Test, Watch, outcome, watch

_ROOT = Path(__file__).parents[2]
_SHARED = Path("shared")
_RULES = ("shared/core", *map(str, sorted(path.relative_to(_ROOT) for path in _ROOT.glob("shared/*/rules"))))
_TESTS = ("tests/core", *map(str, sorted(path.relative_to(_ROOT) for path in _ROOT.glob("tests/*/rules"))))


def main(arguments: Sequence[str]) -> None:
    """Try the mutants of these modules, by default of all, and print the survivors and a table."""
    os.chdir(_ROOT)
    asked = _asked(arguments or _RULES)
    watched = watch(_SHARED, [str(path) for path in _tests()])
    table = {str(path): _try_all(path, lines, watched) for path, lines in asked.items()}
    print("\n| module | mutants | killed | out of time | survivors |\n| --- | ---: | ---: | ---: | ---: |")
    for name, counts in {**table, "all": sum(table.values(), Counter())}.items():
        numbers = (counts.total(), counts["killed"], counts["out of time"], counts["survived"])
        print(f"| {name} | {' | '.join(map(str, numbers))} |")


def _asked(arguments: Sequence[str]) -> Mapping[Path, set[int]]:
    """The modules, each with the lines that are wanted of it; none are all."""
    asked: dict[Path, set[int]] = {}
    for argument in arguments:
        name, _, line = argument.partition(":")
        for path in sorted(Path(name).rglob("*.py")) if Path(name).is_dir() else [Path(name)]:
            asked.setdefault(path, set()).update({int(line)} if line else ())
    return asked


def _tests() -> list[Path]:
    return sorted(path for folder in _TESTS for path in Path(folder).rglob("test_*.py"))


def _try_all(path: Path, lines: set[int], watched: Watch) -> Counter[str]:
    tree = ast.parse(path.read_text("utf-8"))
    callers, functions = _callers(path, watched), _functions(tree)
    importing = {str(test) for test in _importing(_tests(), path, *_importing(_SHARED.rglob("*.py"), path))}
    all_tests = {test for test in watched.seconds if test.partition("::")[0] in importing}.union(*callers.values())
    outcomes: Counter[str] = Counter()
    for mutant in mutants(tree):
        if lines and mutant.line not in lines:
            continue
        function = next((function for function in functions if mutant.line in function), None)
        chosen = {test for line in function for test in callers.get(line, ())} if function else all_tests
        tests = sorted(chosen, key=lambda test: (f"/test_{path.stem}.py" not in test, watched.seconds[test]))
        seconds = sum(watched.seconds[test] for test in tests)
        found = outcome(_name(path), compile(tree, str(path), "exec"), tests, seconds) if tests else "survived"
        outcomes[found] += 1
        if found != "killed":
            print(f"{path}:{mutant.line} {found}: {mutant.before}  ->  {mutant.after}", flush=True)
    return outcomes


def _importing(paths: Iterable[Path], *modules: Path) -> list[Path]:
    """Those of these files that import one of these modules."""
    names = [f"from {_name(module)} import" for module in modules]
    return [path for path in paths if any(name in path.read_text("utf-8") for name in names)]


def _name(module: Path) -> str:
    return ".".join(module.with_suffix("").parts)


def _functions(tree: ast.Module) -> list[range]:
    """The lines of each function with its decorators, of the outer ones first."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    begins = [min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) for node in found]
    return [range(begin, (node.end_lineno or begin) + 1) for begin, node in zip(begins, found, strict=True)]


def _callers(path: Path, watched: Watch) -> Mapping[int, set[Test]]:
    """Which tests call the function that begins in a line."""
    callers: dict[int, set[Test]] = {}
    for test, calls in watched.calls.items():
        for line in (line for file, line in calls if file == str(path.resolve())):
            callers.setdefault(line, set()).add(test)
    return callers


if __name__ == "__main__":
    main(sys.argv[1:])
