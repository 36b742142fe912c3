"""`make test-all`: all tests but the gate's and storms. What fails runs once more, alone.

A test that passes then is flaky: it is printed and counted, and more than `_MOST_FLAKY` are a failure.
"""

import json
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.stack.places import CHECKOUT

_MOST_FLAKY = 3
_RUN_SECONDS = 5_400
_FAILED = CHECKOUT / ".pytest_cache/v/cache/lastfailed"
_PYTEST = (sys.executable, "-m", "pytest", "--tier=rest", "--timeout=180", "--max-worker-restart=20")


def main(words: Sequence[str]) -> int:
    """Run them all, and then those that failed; the exit code."""
    _FAILED.unlink(missing_ok=True)
    code = _run("-n", "auto", *words)
    if code != pytest.ExitCode.TESTS_FAILED:
        return code
    failed = _failed()
    print(f"\n{len(failed)} failed. Each runs once more, alone.", flush=True)
    _run("-n0", "--last-failed", *words)
    real = _failed()
    flaky = sorted(failed - real)
    print("\nFlaky, as they passed alone:" if flaky else "\nNone is flaky.", *flaky, sep="\n    ")
    print(f"{len(real)} failed twice, {len(flaky)} are flaky ({_MOST_FLAKY} may be).", *sorted(real), sep="\n    ")
    return int(bool(real) or len(flaky) > _MOST_FLAKY)


def _run(*words: str) -> int:
    try:
        return subprocess.run([*_PYTEST, *words], cwd=CHECKOUT, check=False, timeout=_RUN_SECONDS).returncode
    except subprocess.TimeoutExpired:
        print(f"pytest was ended after {_RUN_SECONDS} s", file=sys.stderr)
        return 1


def _failed() -> set[str]:
    return set(json.loads(_FAILED.read_text())) if _FAILED.exists() else set()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
