"""Node-local filters and scores against the verdicts of the real kube-scheduler 1.36 (../shared/oracle)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from shared.kube import objects as api
from shared.kube.pods.convert import node_from_api, pod_class_of, pod_from_api
from shared.model.constraints import PodClass
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.scoring import norms_of
from shared.scheduling.scores.allocation import balanced_allocation, least_allocated
from shared.scheduling.scores.preferences import affinity_score, taint_score
from shared.scheduling.state.cache import ClusterCache

SHARED = Path(os.environ.get("CONCLAVE_SHARED", Path(__file__).parents[2].parent / "shared"))
CASES = SHARED / "oracle" / "cases.jsonl"
PLUGINS = {"NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit"}

pytestmark = pytest.mark.skipif(not CASES.exists(), reason=f"the oracle's cases are not at {CASES}")


def cases() -> Iterator[tuple[dict[str, Any], ClusterCache, PodClass]]:
    with CASES.open() as lines:
        for line in lines:
            case = json.loads(line)
            if case["expect"].get("preEnqueue"):
                continue
            cache = ClusterCache()
            for node in case["input"]["nodes"]:
                cache.upsert_node(node_from_api(msgspec.convert(node, api.KubeNode)))
            for raw in case["input"].get("pods", []):
                pod = pod_from_api(msgspec.convert(raw, api.KubePod))
                cache.observe(msgspec.structs.replace(pod, uid=pod.uid or pod.key))
            incoming = msgspec.convert(case["input"]["pod"], api.KubePod)
            yield case, cache, pod_class_of(incoming, incoming=True)


def test_every_node_local_verdict_is_kube_schedulers() -> None:
    verdicts = 0
    for case, cache, pod_class in cases():
        feasibility = FeasibilityCache(cache.table)
        expected = case["expect"].get("infeasible", {})
        nominated = any((p.get("status") or {}).get("nominatedNodeName") for p in case["input"].get("pods", []))
        for name, row in cache.table.row_of.items():
            verdict = feasibility.rejection(pod_class, row)
            theirs = expected.get(name)
            verdicts += 1
            assert (verdict is None) == bool(feasibility.of(pod_class).mask[row])
            if verdict is not None:
                assert theirs is not None, (case["id"], name, verdict)
                if theirs.get("stage") != "PreFilter":
                    mine = (verdict.plugin, verdict.code.value, sorted(verdict.reasons))
                    assert mine == (theirs["plugin"], theirs["code"], theirs["reasons"]), (case["id"], name)
            elif theirs is not None and theirs.get("stage") != "PreFilter" and not nominated:
                # Rejected by a rule that needs the whole cluster, or volumes: not a node-local one.
                assert theirs["plugin"] not in PLUGINS, (case["id"], name, theirs)
    assert verdicts > 10_000


def test_every_node_local_score_is_kube_schedulers() -> None:
    scores = 0
    for case, cache, pod_class in cases():
        feasible, expected = case["expect"].get("feasible"), case["expect"].get("scores")
        if not feasible or not expected:
            continue
        table = cache.table
        rows = np.array([table.row_of[name] for name in feasible])
        feasibility = FeasibilityCache(table)
        entry = feasibility.of(pod_class)
        entry.mask[:] = False
        entry.mask[rows] = True  # rules that need the whole cluster may have rejected more
        norms = norms_of(feasibility, pod_class)
        mine = {
            "NodeResourcesFit": least_allocated(table, pod_class, rows),
            "NodeResourcesBalancedAllocation": balanced_allocation(table, pod_class, rows),
            "TaintToleration": 3 * taint_score(table, pod_class, rows, norms) + np.zeros(len(rows), np.int64),
            "NodeAffinity": 2 * affinity_score(table, pod_class, rows, norms) + np.zeros(len(rows), np.int64),
        }
        for index, name in enumerate(feasible):
            for plugin, values in mine.items():
                assert int(values[index]) == expected[name].get(plugin, 0), (case["id"], name, plugin)
                scores += 1
    assert scores > 15_000
