"""Runs of pytest in processes of their own, forked from one that has imported what tests need but the product."""

import contextlib
import gc
import io
import os
import resource
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from multiprocessing import get_context
from pathlib import Path
from types import CodeType, FrameType, ModuleType

import pytest
from hypothesis import HealthCheck, Phase, settings

_UNUSED = ("cacheprovider", "faker", "schemathesis", "threadexception", "unraisableexception", "xdist")
_OPTIONS = ["-x", "-q", "--noconftest", "--assert=plain", "--tb=no", *(f"-pno:{plugin}" for plugin in _UNUSED)]
_PROJECT = {"shared", "services", "carillon", "tests"}
_EXAMPLES = 30
_PATIENCE_SECONDS = 10
_MEMORY_BYTES = 4 * 2**30

Test = str
"""The id of a test's function: a fault may change what stands in brackets behind it."""


class Watch:
    """How many seconds each test takes, and which functions of a folder it calls: the file and the first line."""

    def __init__(self, folder: Path) -> None:
        self.seconds: defaultdict[Test, float] = defaultdict(float)
        self.calls: defaultdict[Test, set[tuple[str, int]]] = defaultdict(set)
        self._prefix = f"{folder.resolve()}/"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        _clear_caches()
        test, started = _test(item), time.process_time()
        calls = self.calls[test]

        def note(frame: FrameType, event: str, _: object) -> None:
            if event == "call" and frame.f_code.co_filename.startswith(self._prefix):
                calls.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

        sys.setprofile(note)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            self.seconds[test] += time.process_time() - started


def watch(folder: Path, files: Sequence[str]) -> Watch:
    """Run these tests without a fault. Raises `SystemExit` where one fails."""
    _run(files, "--collect-only")  # imports what will be needed; of that, the project's own is forgotten
    for name in [name for name in sys.modules if name.partition(".")[0] in _PROJECT]:
        if not name.startswith("tests.mutation"):
            del sys.modules[name]
    gc.freeze()
    with get_context("fork").Pool(1) as pool:
        return pool.apply(_watched, (Watch(folder), files))


def outcome(module: str, code: CodeType, tests: Sequence[Test], seconds: float) -> str:
    """What becomes of a module with this code: `killed`, `out of time` or `survived`. Its tests need so many seconds
    without a fault; those of the first one's file run first."""
    if not (child := os.fork()):
        failed = 1
        try:
            failed = _try_code(module, code, tests, int(3 * seconds) + _PATIENCE_SECONDS)
        finally:
            os._exit(failed)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        return "out of time"
    return "killed" if status else "survived"


def _try_code(module: str, code: CodeType, tests: Sequence[Test], seconds: int) -> int:
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    sys.meta_path.insert(0, _Changed(module, code))
    own = [test for test in tests if _file(test) == _file(tests[0])]
    others = [test for test in tests if test not in own]
    return any(_run({*map(_file, some)}, plugins=[_FewExamples(), _Chosen(some)]) for some in (own, others) if some)


def _watched(watch: Watch, files: Sequence[str]) -> Watch:
    if _run(files, plugins=[_FewExamples(), watch]):
        raise SystemExit("the tests fail without a fault")
    return watch


def _run(files: Collection[str], *options: str, plugins: Sequence[object] = ()) -> int:
    with contextlib.redirect_stdout(io.StringIO()):
        return int(pytest.main([*_OPTIONS, *options, *files], plugins=plugins))


def _test(item: pytest.Item) -> Test:
    return item.nodeid.partition("[")[0]


def _file(test: Test) -> str:
    return test.partition("::")[0]


def _clear_caches() -> None:
    """What one test has left there, the next one would not call."""
    for module in [module for name, module in sys.modules.items() if name.partition(".")[0] in _PROJECT]:
        for value in vars(module).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


class _FewExamples:
    """Properties are tried with few examples, the same ones every time, and what fails is not made small."""

    def pytest_configure(self) -> None:
        settings.register_profile("few", self._few(settings()))
        settings.load_profile("few")

    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        for test in (getattr(item, "function", None) for item in items):
            if chosen := getattr(test, "_hypothesis_internal_use_settings", None):
                vars(test)["_hypothesis_internal_use_settings"] = self._few(chosen)

    def _few(self, chosen: settings) -> settings:
        return settings(
            chosen,
            max_examples=min(chosen.max_examples, _EXAMPLES),
            phases=[Phase.explicit, Phase.generate],
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )


class _Chosen:
    """Runs these tests alone, in their order."""

    def __init__(self, tests: Sequence[Test]) -> None:
        self._places = {test: place for place, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if _test(item) in self._places]
        items[:] = sorted(chosen, key=lambda item: self._places[_test(item)])


class _Changed(MetaPathFinder, Loader):
    """Imports one module from this code."""

    def __init__(self, module: str, code: CodeType) -> None:
        self._module = module
        self._code = code

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name == self._module else None

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)
