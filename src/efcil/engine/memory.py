"""Memory that is freed while a network is trained stays at hand, because the next step wants as much again.

The C library of Linux gives large blocks back to the system at once, and every page of the next one is then a fault:
a fifth of the processor time of a training step (benchmarks/README.md). No number changes. Elsewhere nothing happens.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # as malloc.h has them
MOST = (1 << 31) - 1  # bytes, more than any block of a step
LARGEST = (1 << 30, 1 << 25)  # of blocks that are kept; older libraries refuse the first
USUAL_TRIM, USUAL_LARGEST = 1 << 17, 1 << 25  # what the library would come to by itself


@contextmanager
def kept() -> Iterator[None]:
    """Freed memory is kept within, and given back at the end, when the usual rules hold again."""
    if platform.libc_ver()[0] != "glibc":
        yield
        return
    library = ctypes.CDLL(None)
    any(library.mallopt(MMAP_THRESHOLD, size) for size in LARGEST)
    library.mallopt(TRIM_THRESHOLD, MOST)
    try:
        yield
    finally:
        library.mallopt(MMAP_THRESHOLD, USUAL_LARGEST)
        library.mallopt(TRIM_THRESHOLD, USUAL_TRIM)
        library.malloc_trim(0)
