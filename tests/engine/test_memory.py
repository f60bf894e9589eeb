"""Freed memory is kept for the next step, and given back at the end; in a process of its own, which it changes."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource, torch
from efcil.engine import memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def steps():
    found = []
    for _ in range(12):
        before = faults()
        block = [torch.ones(1 << 23) for _ in range(4)]
        del block
        found.append(faults() - before)
    return found[-1]  # once memory has found its place

def held():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() >> 20

outside, first = steps(), held()
with memory.kept():
    within, during = steps(), held()
after = held()
block = torch.ones(1 << 26)
del block
print(outside, within, first, during, max(after, held()))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only the C library of Linux gives memory back so soon")
def test_freed_memory_is_kept_within_and_given_back_at_the_end() -> None:
    printed = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True).stdout
    outside, within, first, during, after = map(int, printed.split())
    assert outside > 500 and within < outside / 20  # pages that were asked for anew
    assert during >= first + 24 and after <= first + 16, (first, during, after)  # MB
