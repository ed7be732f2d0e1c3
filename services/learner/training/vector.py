"""Many episodes at once, over processes: the same results in the same order, however many workers there are.

Episodes are independent and their inputs are values, so a worker is a process that plays whole episodes; nothing is
shared and nothing depends on which worker was faster. One worker means this process and no other is started.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

from shared.errors import ConfigError
from shared.runtime.process.parent_death import end_with_parent

T = TypeVar("T")
R = TypeVar("R")
MAX_WORKERS = 64


class Workers:
    """Runs a function of this package's top level over items. Use as a context; leaving it ends the processes."""

    def __init__(self, workers: int = 1) -> None:
        if not 1 <= workers <= MAX_WORKERS:
            raise ConfigError(f"workers: {workers} is out of range; give 1 to {MAX_WORKERS}")
        # spawn: torch's threads and a forked child do not go together
        self._pool = (
            ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"), initializer=end_with_parent)
            if workers > 1
            else None
        )

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """The results in the items' order."""
        return map(function, items) if self._pool is None else self._pool.map(function, items)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
