"""Keeps a service's process small. Importing it acts, so an entry point imports it before anything else.

Three things cost memory and give a service nothing: structlog's console renderer imports ``rich`` where that is
installed (4 MB); glibc gives every thread a malloc arena of its own, which gRPC's and the lease thread fragment; and
OpenBLAS keeps a buffer per core, though no service multiplies matrices worth a second thread.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

M_ARENA_MAX = -8
"""glibc's ``malloc.h``."""

_modules: dict[str, Any] = sys.modules
_modules.setdefault("rich", None)  # an import of it now raises ImportError, which structlog expects
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
_mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # absent where the libc is not glibc
if _mallopt is not None:
    _mallopt(M_ARENA_MAX, 1)
