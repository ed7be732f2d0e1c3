"""One function over many items, in processes of this machine or on a Ray cluster: the same results in the same order.

What is mapped is a function of a module's top level whose result depends on its item alone, so it does not matter
where it runs. On a cluster (extra ``ray``) this package must be installed in the same version on every node. One worker
is this process.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

from shared.errors import ConfigError
from shared.runtime.process.linux import end_with_parent

T = TypeVar("T")
U = TypeVar("U")
MAX_WORKERS = 64


class Workers:
    """Use as a context: leaving it ends the processes, at once where an error or Ctrl-C leaves it.

    ``ray``: the address of a cluster (``auto``, ``HOST:PORT``, ``ray://HOST:PORT``, or ``local`` for one on this
    machine that ends with us); how many run at a time is the cluster's matter then. ``ConfigError``: more workers than
    allowed, Ray is not installed, or nobody answers at that address.
    """

    def __init__(self, workers: int = 1, *, ray: str = "") -> None:
        if not 1 <= workers <= MAX_WORKERS:
            raise ConfigError(f"workers: {workers} is out of range; give 1 to {MAX_WORKERS}")
        self._ray: Any = _joined(ray) if ray else None
        self._others = set(multiprocessing.active_children())
        # spawn: torch's threads, or a terminal's, and a forked child do not go together
        self._pool = (
            ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"), initializer=_in_child)
            if workers > 1 and not ray
            else None
        )

    def map(self, function: Callable[[T], U], items: Iterable[T], /) -> Iterator[U]:
        """The results in the items' order."""
        if self._ray is not None:
            called, held = self._ray.remote(_called), self._ray.put(function)
            return map(self._ray.get, [called.remote(held, item) for item in items])
        return map(function, items) if self._pool is None else self._pool.map(function, items)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            if kind is not None:
                for process in set(multiprocessing.active_children()) - self._others:
                    process.terminate()
            self._pool.shutdown(wait=True, cancel_futures=True)
        if self._ray is not None:
            self._ray.shutdown()


def _joined(address: str) -> Any:
    """The Ray module, connected to the cluster at ``address``."""
    if importlib.util.find_spec("ray") is None:
        raise ConfigError("--ray: ray is missing; install the extra: pip install 'conclave-scheduler[ray]'")
    import ray

    try:
        ray.init(address=address, include_dashboard=False if address == "local" else None, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(f"--ray: {address}: {str(error).splitlines()[0]}; give the address of a cluster") from None
    return ray


def _called(function: Callable[[T], U], item: T) -> U:
    return function(item)


def _in_child() -> None:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends us
