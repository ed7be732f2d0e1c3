"""What a process asks of Linux about itself; elsewhere each does nothing.

Children die with the process that started them, whatever ends it: nothing is left behind after kill -9. (The gentle way
is SIGTERM from a parent that is still there.) And what only a start needed of the text of libraries is given back.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_MADV_DONTNEED = 4
"""Linux's ``sys/prctl.h`` and ``sys/mman.h``."""

# Loaded before any fork: between fork and exec only calls that take no lock are safe.
_LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """As ``preexec_fn``: be killed when the thread that started us ends. Start such children from the main thread."""
    with contextlib.suppress(AttributeError):
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def end_with_parent() -> None:
    """In a process that ``multiprocessing`` started: be killed when the parent ends, and end now if it already has.

    Such a process loads its modules first; a parent that was killed meanwhile sends no signal any more.
    """
    die_with_parent()
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():
        os._exit(1)


def forget_start() -> None:
    """Give back what the start alone needed of libraries' text and constants, some 20 MB: when everything is connected.

    They are mapped from files and never written, so the kernel may drop them; what is used comes back from the page
    cache, one minor fault per few pages. A mapping that has a changed page stays.
    """
    madvise = getattr(_LIBC, "madvise", None)
    try:
        lines = Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    begin = size = 0
    for line in lines:
        words = line.split()
        if not words[0].endswith(":"):
            first, last = (int(part, 16) for part in words[0].split("-"))
            text = len(words) > 5 and words[1] in ("r-xp", "r--p") and words[5].startswith("/")
            begin, size = (first, last - first) if text else (0, 0)
        elif words[0] == "Shared_Dirty:" and words[1] != "0":  # changed before a fork
            size = 0
        elif words[0] == "Private_Dirty:" and size and words[1] == "0" and madvise is not None:
            madvise(ctypes.c_void_p(begin), ctypes.c_size_t(size), _MADV_DONTNEED)
