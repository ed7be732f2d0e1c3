"""Children that die with the process that started them, whatever ends it: nothing is left behind after kill -9.

Linux (``PR_SET_PDEATHSIG``); elsewhere it does nothing. It refuses to end anything gently: the gentle way is SIGTERM
from a parent that is still there.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal

_PR_SET_PDEATHSIG = 1

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
