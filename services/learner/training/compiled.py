"""Compiles plain loops when numba is there, and leaves them as they are when it is not.

Training the placement policy plays thousands of episodes. numba belongs to the ``learn`` extra; the same functions run
without it, some hundred times slower, where it does not support the machine.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

NUMBA = importlib.util.find_spec("numba") is not None


def compiled(function: F) -> F:
    """``function``, compiled at its first call where numba is installed."""
    if not NUMBA:
        return function
    njit: Callable[..., Callable[[F], F]] = importlib.import_module("numba").njit
    return njit(cache=True, fastmath=True)(function)
