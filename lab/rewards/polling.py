"""Reads signals from a Prometheus beside training or an evaluation: a thread with a loop of its own, every minute.

The first reading is taken before anything begins, and one that fails there is an error of the command; later ones cost
the value's age only, told once per reason. Not its job: how long a value is good (``policy.rewards.signals``).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from shared.adapters.prometheus import PrometheusClient
from shared.errors import ConfigError
from shared.policy.rewards.signals import RewardSignal, RewardSignals, parse_signals

EVERY_S = 60.0


def _silent(text: str) -> None:
    """Tell nobody."""


class SignalPoller:
    """Use as a context: it begins with one reading of all, and ends its thread. ``values``: those that are good now."""

    def __init__(
        self, url: str, signals: Sequence[RewardSignal], *, token: str = "", every_s: float = EVERY_S,
        report: Callable[[str], None] = _silent, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._url, self._signals, self._token, self._every_s = url, tuple(signals), token, every_s
        self._report, self._clock = report, clock
        self._known = RewardSignals([signal.name for signal in signals])
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._told: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="signals", daemon=True)

    def __enter__(self) -> Self:
        if problems := asyncio.run(self.read()):
            raise ConfigError(problems[0])
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def names(self) -> tuple[str, ...]:
        """Of all of them."""
        return self._known.names

    def values(self) -> Mapping[str, float]:
        """Of the signals that are good now."""
        with self._lock:
            return self._known.values(self._clock())

    async def read(self) -> list[str]:
        """Read all of them once; what went wrong."""
        problems = []
        async with PrometheusClient(self._url, token=self._token) as client:
            for signal in self._signals:
                value: float | None = None
                try:
                    samples = await client.query(signal.query)
                    if len(samples) == 1:
                        value = samples[0].samples[0][1]
                    else:
                        problems.append(
                            f"signal {signal.name}: {len(samples)} series, one is wanted; aggregate, as in avg(...)"
                        )
                except ConfigError as error:
                    problems.append(f"signal {signal.name}: {error}")
                with self._lock:
                    if not self._known.take(signal.name, value, self._clock()) and value is not None:
                        problems.append(f"signal {signal.name}: is {value:g}; correct the query")
        return problems

    def _run(self) -> None:
        while not self._ended.wait(self._every_s):
            for problem in asyncio.run(self.read()):
                if problem not in self._told:
                    self._told.add(problem)
                    self._report(f"{problem}; the last good value stands")


class NoSignals:
    """Where none were asked for."""

    names: tuple[str, ...] = ()

    def values(self) -> Mapping[str, float]:
        """None."""
        return {}


@contextmanager
def signals_of(
    given: Sequence[str], url: str, token_file: Path | None, *, taken: Collection[str],
    report: Callable[[str], None] = _silent,
) -> Iterator[SignalPoller | NoSignals]:  # fmt: skip
    """The signals that flags name, read as long as the context is open. ``ConfigError``: what cannot be used."""
    signals = parse_signals(given, tuple(taken))
    if not signals:
        if url:
            raise ConfigError("--prometheus: is asked for signals alone; add --signal NAME=QUERY, or leave it out")
        yield NoSignals()
        return
    if not url:
        raise ConfigError("--signal: nobody can be asked; give --prometheus URL")
    token = ""
    if token_file is not None:
        try:
            token = token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--prometheus-token-file: {token_file}: {error}; give a file that can be read") from None
    with SignalPoller(url, signals, token=token, report=report) as poller:
        yield poller
