"""Writes the status of LatencyTarget objects, one after the other; what it says is ``usage/target_status.py``'s.

A write that fails is made again at a later look, since the watch does not show it. Where the role may not write, or the
definition in the cluster is of before there was a status, that is told once and tried rarely.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import structlog

from services.coordinator.usage.target_status import TellTarget
from shared.errors import KubeError, KubeRejected
from shared.kube.nodes.latency_targets import LATENCY_TARGETS
from shared.ports import KubeApi

log = structlog.get_logger()

EVERY_S = 2.0
REFUSED_S = 300.0


async def keep(
    api: KubeApi,
    due: Callable[[float, str], Sequence[TellTarget]],
    *,
    clock: Callable[[], float],
    every_s: float = EVERY_S,
) -> None:
    """Write what is due; eternal."""
    told, again_s = False, 0.0
    unknown: set[str] = set()
    """Uids of objects that the server did not know, since it last took a status."""
    while True:
        await asyncio.sleep(every_s)
        if clock() < again_s:
            continue
        for work in due(clock(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")):
            patch = {"metadata": {"uid": work.uid}, "status": work.status}
            try:
                await api.patch(
                    LATENCY_TARGETS, namespace="", name=work.name, patch=patch, subresource="status", strategy="merge",
                    wait_when_busy=False,
                )  # fmt: skip
            except KubeRejected as error:
                log.info("latency_target_status_failed", target=work.name, error=error)
                # an object that was deleted is due no more; one that is unknown again has no status to write
                missing = error.status == 404 and work.uid in unknown
                if error.status == 404:
                    unknown.add(work.uid)
                if error.status in (403, 405) or missing:
                    again_s = clock() + REFUSED_S
                    if not told:
                        remedy = "apply k8s/base/latency-targets-crd.yaml and rbac.yaml of this version"
                        log.warning("latency_target_status_refused", error=error, remedy=remedy)
                    told = True
                    break
            except KubeError as error:
                log.info("latency_target_status_failed", target=work.name, error=error)
            else:
                unknown.clear()
