"""Keeps a service's process small. Importing it acts, so an entry point imports it before anything else.

What costs memory and gives a service nothing: structlog's console renderer imports ``rich`` where that is installed
(4 MB); glibc gives every thread a malloc arena of its own, which gRPC's and the lease thread fragment, and keeps large
blocks after they were freed; OpenBLAS has a buffer per core, though no service multiplies matrices worth a second one.
And what costs time: modules live for ever, and the collector looks for garbage in them as they come.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from typing import Any

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""glibc's ``malloc.h``."""

LARGE_BYTES = 512 * 1024
"""Blocks above this go back to the system when freed. Left alone, glibc raises the bound to the largest block it has
seen freed (a page of a view, say), and keeps that much for ever. It must lie above the 256 KB that uvloop asks for at
each read of TLS, twice: taken from the system and given back each time they cost 13 us, from the heap 1 us."""

WHILE_LOADING = 50_000
"""Containers between two collections until a service is ready (``garbage.py`` then sets its own)."""

gc.set_threshold(WHILE_LOADING)
_modules: dict[str, Any] = sys.modules
_modules.setdefault("rich", None)  # an import of it now raises ImportError, which structlog expects
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its C core writes to stderr what the adapter reports as errors anyway
_mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # absent where the libc is not glibc
if _mallopt is not None:
    _mallopt(M_ARENA_MAX, 1)
    _mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
    _mallopt(M_TRIM_THRESHOLD, LARGE_BYTES)
