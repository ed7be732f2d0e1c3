"""Gives back what only a process's start needed of the text of its libraries: some 12 MB of resident memory.

Text is mapped from files and never written, so the kernel may drop it; what runs comes back from the page cache, one
minor fault per few pages. It refuses to touch a mapping that has a changed page.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

MADV_DONTNEED = 4
"""Linux's ``sys/mman.h``."""


def forget_start() -> None:
    """Once, when everything is imported and connected. Does nothing where there is no /proc."""
    madvise = getattr(ctypes.CDLL(None), "madvise", None)
    try:
        lines = Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    begin = size = 0
    for line in lines:
        words = line.split()
        if not words[0].endswith(":"):
            first, last = (int(part, 16) for part in words[0].split("-"))
            text = len(words) > 5 and words[1] == "r-xp" and words[5].startswith("/")
            begin, size = (first, last - first) if text else (0, 0)
        elif words[0] == "Private_Dirty:" and size and words[1] == "0" and madvise is not None:
            madvise(ctypes.c_void_p(begin), ctypes.c_size_t(size), MADV_DONTNEED)
