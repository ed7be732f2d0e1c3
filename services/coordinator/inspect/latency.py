"""How far the nodes are from what a pod serves, and whether its limits hold: for ``explain``. Pure; reads only."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np

from services.coordinator.core.core import Core
from services.coordinator.usage.latency_limits import unheeded
from services.coordinator.usage.measured import NAMES as PARTS_BY_NAME
from shared.model.node import UNKNOWN_LATENCY
from shared.model.pod import Pod

USERS = "the users (conclave.io/latency-ms of the nodes)"


def latency_of(core: Core, pod: Pod) -> dict[str, Any] | None:
    """What is known of the latency that the pod asks for; None where it asks for none.

    ``problem``: why its limits cannot count as they are, or which of them its node breaks now."""
    wanted, table = pod.pod_class, core.state.cache.table
    soft, hard, target = wanted.latency_soft_us, wanted.latency_hard_us, wanted.latency_target
    if not (soft or hard or target):
        return None
    known = table.newest_latency(target, table.live_rows())
    row = table.row_of.get(pod.node_name, -1) if pod.node_name else -1
    here = int(table.newest_latency(target, np.array([row]))[0]) if row >= 0 else UNKNOWN_LATENCY
    there = known[known >= 0]
    answer: dict[str, Any] = {
        "target": target or USERS,
        "soft_ms": soft / 1000 or None,
        "hard_ms": hard / 1000 or None,
        "strict": wanted.latency_strict,
        "heeded": wanted.latency_strict or core.variants.heeds_latency,
        "node_ms": here / 1000 if here >= 0 else None,
        "nodes_known": len(there),
        "nodes_within_soft": int((there <= soft).sum()) if soft else None,
        "nodes_within_hard": int((there <= hard).sum()) if hard else None,
        "least_ms": float(there.min()) / 1000 if len(there) else None,
        "problem": "",
    }
    if not len(there):
        answer["problem"] = _nobody_knows(target, strict=wanted.latency_strict)
    elif pod.node_name and here < 0:
        answer["problem"] = f"the latency of {pod.node_name} is not known"
    elif pod.node_name and hard and here > hard:
        answer["problem"] = f"{pod.node_name} is beyond the hard limit now"
    elif pod.node_name and soft and here > soft:
        answer["problem"] = f"{pod.node_name} is beyond the soft limit now"
    elif not pod.node_name and hard and not (there <= hard).any():
        answer["problem"] = "no node is within the hard limit"
    if not answer["heeded"] and (soft or hard):
        policy = core.variants.title or core.state.policy
        answer["problem"] = "; ".join(filter(None, (answer["problem"], unheeded(policy))))
    return answer


MOST_MEASURED = 100
SHARES = ("disk", "network")


def measured(core: Core) -> dict[str, dict[str, float]]:
    """By node what is measured of it: shares of its disk and network, and in ms the round trip to other nodes
    (``nodes``) and to each target; of the first ``MOST_MEASURED`` nodes."""
    found: dict[str, dict[str, float]] = {}
    for name, node in islice(core.variants.used.items(), MOST_MEASURED):
        told = {target: median / 1000 for target, (median, _) in node.latencies.items()}
        if node.delay_us is not None:
            told["nodes"] = node.delay_us / 1000
        for part, known in zip(PARTS_BY_NAME, node.fresh(), strict=True):
            if part in SHARES and known is not None:
                told[part] = known.amount
        found[name] = told
    return found


def _nobody_knows(target: str, *, strict: bool) -> str:
    if not target:
        counts = "so no node is within a strict limit" if strict else "limits count as broken everywhere"
        return f"no node has the annotation conclave.io/latency-ms; {counts}"
    ask = "is there a LatencyTarget of that name, does it answer, and do agents run on their nodes?"
    return f"no node knows its latency to {target}: {ask}"
