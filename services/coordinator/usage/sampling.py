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
from shared.errors import KubeError, KubeRejected
from shared.kube.nodes.node_metrics import NodeMetric

log = structlog.get_logger()

UNSERVED_S = 300.0
"""How often a cluster without the API is asked again."""
FLUSH_S = 1.0


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
    """Read every ``every_s()`` seconds while ``wanted()``; eternal. ``retuned`` is set when ``every_s`` has changed.

    What a server tells again is not new: one that stands still with a clock ahead of ours would be for ever."""
    told = False
    seen: dict[str, float] = {}
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
                news = [one for one in metrics if seen.get(one.node) != one.at_s]
                seen = {one.node: one.at_s for one in metrics}
                post(NodesMeasured(samples_of(news, time.time())))
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


def samples_of(metrics: Sequence[NodeMetric], now_s: float) -> tuple[NodeSample, ...]:
    """With ages in place of times; one from the future is new, one without a believable time is left out."""
    ages = ((metric, max(0.0, now_s - metric.at_s)) for metric in metrics)
    return tuple(
        NodeSample(metric.node, age_s, metric.cpu_millis, metric.memory_bytes)
        for metric, age_s in ages
        if age_s <= MOST_AGE_S
    )
