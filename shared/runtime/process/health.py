"""What is wrong with this process that only people can put right: certificates about to end, a clock that is wrong.

Why: an expired certificate shows as handshakes that fail somewhere else. Here it is one line in the log of the process
that holds it, when it begins and when it is over, and a warning beside the process's registration, for
``conclave status``. Files are looked at again and again, since they are renewed in place.

It does not end the process, since a renewal helps while it runs, and does not judge certificates of others: TLS does.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from shared.adapters.peers.certificates import Dates, dates_in
from shared.adapters.peers.clock_skew import ClockSkew
from shared.runtime.observe.metrics import Metrics

log = structlog.get_logger()

LOOK_EVERY_S = 10.0
SOON_S = 7 * 86_400.0
"""A certificate that ends within a week is told: those of ``conclave pki`` are renewed a month before that."""

Warnings = tuple[str, ...]


class ProcessHealth:
    """``files``: certificates of ours by what they are for. ``wall``: seconds since the epoch."""

    def __init__(
        self, files: Mapping[str, Path], skew: ClockSkew | None = None, *, wall: Callable[[], float] = time.time
    ) -> None:
        self._files = dict(files)
        self._skew = skew
        self._wall = wall
        self._told: dict[str, str] = {}
        self._first_end = float("inf")
        self._noted: dict[str, str] = {}
        self._asked: dict[str, Callable[[], str]] = {}

    def ask(self, subject: str, read: Callable[[], str]) -> None:
        """``read`` is asked at each look what is wrong about ``subject``; "" for nothing."""
        self._asked[subject] = read

    def note(self, subject: str, text: str) -> None:
        """What the process itself found wrong about ``subject``; "" when it is over. Told at the next look."""
        if text:
            self._noted[subject] = text
        else:
            self._noted.pop(subject, None)

    def register(self, metrics: Metrics) -> None:
        """``certificate_left_seconds`` (until the first of ours ends; +Inf without any), ``clock_skew_seconds``."""
        metrics.gauge_of(
            "certificate_left_seconds",
            "Until the first of our certificates ends",
            lambda: self._first_end - self._wall(),
        )
        metrics.gauge_of("clock_skew_seconds", "The clock furthest from ours, if by seconds", self._worst_skew)

    def look(self) -> Warnings:
        """What is wrong now. What is new is logged, and what is over."""
        asked = {subject: text for subject, read in self._asked.items() if (text := read())}
        found = self._certificates() | self._clock() | asked | self._noted
        for subject, text in found.items():
            if self._told.get(subject) != text:
                log.warning("process_warned", subject=subject, warning=text)
        for subject in self._told.keys() - found.keys():
            log.info("process_warning_over", subject=subject)
        self._told = found
        return tuple(found.values())

    async def run(self, tell: Callable[[Warnings], None]) -> None:
        """An eternal task: ``tell`` whenever the warnings are others than before."""
        told = self.look()
        tell(told)
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            found = self.look()
            if found != told:
                told = found
                tell(told)

    def _certificates(self) -> dict[str, str]:
        now, found, ends = self._wall(), {}, [float("inf")]
        for subject, file in self._files.items():
            try:
                dates = dates_in(file)
            except (OSError, ValueError) as error:
                found[subject] = f"{subject} {file}: cannot be read ({error}); write a PEM certificate there"
                continue
            # of a bundle of CAs one that holds is enough; of a chain the first is ours
            one = max(dates, key=lambda item: item.not_after) if subject.endswith("CA") else dates[0]
            ends.append(one.not_after)
            text = _wrong_with(one, now)
            if text:
                found[subject] = f"{subject} {file}: {text}"
        self._first_end = min(ends)
        return found

    def _clock(self) -> dict[str, str]:
        worst = self._skew.worst() if self._skew is not None else None
        if worst is None:
            return {}
        peer, skew_s = worst
        side = "ahead of" if skew_s > 0 else "behind"
        # whole minutes: the text must not change with every look
        size = f"about {round(abs(skew_s) / 60)} min" if abs(skew_s) >= 60 else "seconds"
        return {"clock": f"the clock of {peer} is {size} {side} ours; set both by NTP"}

    def _worst_skew(self) -> float:
        worst = self._skew.worst() if self._skew is not None else None
        return worst[1] if worst is not None else 0.0


def _wrong_with(dates: Dates, now: float) -> str:
    """The line about one certificate; empty where it holds for long enough."""
    if now >= dates.not_after:
        return f"expired on {_day(dates.not_after)}; renew it (conclave pki renew), or set this machine's clock"
    if now < dates.not_before:
        return f"not valid before {_day(dates.not_before)}; set this machine's clock, or issue it again"
    if dates.not_after - now < SOON_S:
        return f"ends on {_day(dates.not_after)}; renew it (conclave pki renew)"
    return ""


def _day(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
