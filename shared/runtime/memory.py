"""Memory settings of a long-running process, measured in `tests/bench/RESULTS.md`.

A batch makes tens of thousands of objects without cycles, and a few blocks of about a megabyte. Python's collector
searches them for cycles again and again, and glibc gives each large block back to the kernel and asks for it anew:
together over a third of a worker's time.
"""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


@contextmanager
def pause_collection() -> Iterator[None]:
    """Turn the collector off while objects are made that all stay, such as modules. Its useless searches for cycles
    are a fifth of the work of importing."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def settle_in() -> None:
    """Call once after all modules are loaded: collect less often, skip the present objects, keep large blocks."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 10, 10)
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library: nothing to tune
            malloc = ctypes.CDLL(None).mallopt
            malloc(_M_MMAP_THRESHOLD, 32 << 20)
            malloc(_M_TRIM_THRESHOLD, 128 << 20)
