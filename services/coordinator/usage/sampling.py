"""What nodes use, read from the metrics API as long as a policy wants to know; posted to the core.

A cluster without that API, or one that does not let us read it, is asked rarely and told once: policies then go by
requests. Nothing is kept here; samples carry their age, since clocks of machines differ.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from services.coordinator.core.events import Event, NodeSample, NodesMeasured
from services.coordinator.usage.desk import MOST_AGE_S, ReadingsDesk
from services.coordinator.usage.still import Still, still_line
from shared.errors import KubeError, KubeRejected
from shared.kube.nodes.node_metrics import NodeMetric

log = structlog.get_logger()

UNSERVED_S = 300.0
"""How often a cluster without the API is asked again."""
FLUSH_S = 1.0
CLOCK_OFF_S = 120.0
"""What changed since we last looked was measured since, or so long before: a metrics server looks every 15 to 60 s."""
PARTS = "cpu, memory"


class MetricsApi(Protocol):
    """Where metrics come from (``KubeClient``)."""

    async def node_metrics(self) -> Sequence[NodeMetric]:
        """What nodes use. Refused: ``KubeRejected``; unknown: ``KubeUnknown``."""
        ...


async def follow(
    api: MetricsApi,
    *,
    every_s: Callable[[], float],
    retuned: asyncio.Event,
    wanted: Callable[[], bool],
    post: Callable[[Event], None],
) -> None:
    """Read every ``every_s()`` seconds while ``wanted()``; eternal. ``retuned`` is set when ``every_s`` has changed."""
    told = False
    looked = MetricsLooks()
    while True:
        least_s = 0.0
        if wanted():
            try:
                metrics = await api.node_metrics()
            except KubeRejected as error:
                if not told:
                    log.warning("metrics_unserved", error=error)
                told, least_s = True, UNSERVED_S
            except KubeError as error:
                log.info("metrics_unread", error=error)
            else:
                told = False
                post(NodesMeasured(looked.samples(metrics, time.time())))
        await _pause(every_s, least_s, retuned)


async def flush(
    desk: ReadingsDesk, *, clock: Callable[[], float], post: Callable[[Event], None], every_s: float = FLUSH_S
) -> None:
    """Hand on what agents told, many in one event; eternal."""
    while True:
        await asyncio.sleep(every_s)
        event = desk.flush(clock())
        if event is not None:
            post(event)


async def _pause(every_s: Callable[[], float], least_s: float, retuned: asyncio.Event) -> None:
    """Wait so long as is set by then: an hour that was set by mistake must not last an hour."""
    began = asyncio.get_running_loop().time()
    while True:
        retuned.clear()
        try:
            async with asyncio.timeout_at(began + max(every_s(), least_s)):
                await retuned.wait()
        except TimeoutError:
            return


class MetricsLooks:
    """What is new in each answer, with ages in place of times.

    What a server tells again is not new: one that stands still with a clock ahead of ours would be for ever. The times
    are those of nodes' own clocks. One that moved since the last look was measured since then: where it is far from
    our time that node's clock is off, which is told, and the sample counts as of the last look."""

    def __init__(self) -> None:
        self._at_s: dict[str, float] = {}
        self._looked_s = 0.0
        self._still = Still()

    def samples(self, metrics: Sequence[NodeMetric], now_s: float) -> tuple[NodeSample, ...]:
        """Of an answer that came at ``now_s``; one without a believable time is left out."""
        since_s = max(0.0, now_s - self._looked_s)
        found = [
            sample
            for metric in metrics
            if self._at_s.get(metric.node) != metric.at_s
            and (sample := self._sample(metric, now_s, since_s)).age_s <= MOST_AGE_S
        ]
        self._at_s, self._looked_s = {metric.node: metric.at_s for metric in metrics}, now_s
        self._still.keep(self._at_s)
        return tuple(found)

    def _sample(self, metric: NodeMetric, now_s: float, since_s: float) -> NodeSample:
        age_s, missing = max(0.0, now_s - metric.at_s), []
        if metric.at_s > self._at_s.get(metric.node, metric.at_s):
            off_s = now_s - metric.at_s
            if off_s > since_s + CLOCK_OFF_S:
                age_s = since_s
            if not -CLOCK_OFF_S <= off_s <= since_s + CLOCK_OFF_S:
                where = "behind" if off_s > 0 else "ahead of"
                missing.append(
                    f"age: its clock is {abs(off_s):.0f} s {where} the leader's; {PARTS} count as of the last look"
                )
        still_s = self._still.look(metric.node, (metric.cpu_millis, metric.memory_bytes), now_s)
        if still_s:
            missing.append(still_line(PARTS, still_s))
            return NodeSample(metric.node, age_s, None, None, missing=tuple(missing))
        return NodeSample(metric.node, age_s, metric.cpu_millis, metric.memory_bytes, missing=tuple(missing))
