"""`make test-of PROOF=sender` runs the tests that prove a mechanism; without a name it lists the mechanisms."""

import subprocess
import sys
import tomllib
from collections.abc import Sequence

from tests.stack.places import CHECKOUT

_RUN_SECONDS = 5_400


def read_proofs() -> dict[str, dict[str, list[str]]]:
    """By subject and by mechanism, the paths below `tests` of what proves it."""
    table = tomllib.loads((CHECKOUT / "tests/proofs.toml").read_text("utf-8"))
    return {subject: {name: line.split() for name, line in names.items()} for subject, names in table.items()}


def main(name: str, words: Sequence[str]) -> int:
    """Run the tests of this mechanism; the exit code."""
    proofs = read_proofs()
    paths = [f"tests/{path}" for names in proofs.values() for path in names.get(name, ())]
    if not paths:
        print(f"There is no proof of {name!r}. There are:" if name else "make test-of PROOF=NAME, of these:")
        print(*(f"  {subject}: {', '.join(names)}" for subject, names in proofs.items()), sep="\n")
        return 2 if name else 0
    pytest = [sys.executable, "-m", "pytest", "-n", "auto", "--max-worker-restart=5", "--timeout=180", *paths, *words]
    return subprocess.run(pytest, cwd=CHECKOUT, check=False, timeout=_RUN_SECONDS).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:]))
