"""What ``conclave explain`` says of each node is what the oracle-proved verdict says, on every case of the oracle."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from shared.kube.cluster_dump import ClusterDump
from shared.scheduling.cluster_load import incoming_pod, load_cluster
from shared.scheduling.explanation import explain_nodes, verdicts
from shared.scheduling.feasibility import FeasibilityCache
from shared.scheduling.whatif import what_if

SHARED = Path(os.environ.get("CONCLAVE_SHARED", Path(__file__).parents[2].parent / "shared"))
CASES = SHARED / "oracle" / "cases.jsonl"

pytestmark = pytest.mark.skipif(not CASES.exists(), reason=f"the oracle's cases are not at {CASES}")


def test_groups_and_candidates_agree_with_the_verdict_of_every_case() -> None:
    compared = 0
    with CASES.open() as lines:
        for line in lines:
            case = json.loads(line)
            dump = msgspec.convert(case["input"], ClusterDump)
            state, pod = load_cluster(dump), incoming_pod(dump.pod)
            if pod.gates:
                continue
            feasibility = FeasibilityCache(state.table)
            outcome = what_if(state, feasibility, pod)
            mine = {state.table.names[row]: verdict for verdict, row in verdicts(state, feasibility, pod)}
            assert mine.keys() == outcome.infeasible.keys(), case["id"]
            for name, theirs in outcome.infeasible.items():
                assert (mine[name].rejection, mine[name].stage) == (theirs.rejection, theirs.stage), (case["id"], name)
            explained = explain_nodes(state, feasibility, pod)
            assert sum(group.count for group in explained.groups) == len(outcome.infeasible)
            assert {c.name: c.total for c in explained.candidates}.items() <= outcome.totals.items(), case["id"]
            assert all(group.change for group in explained.groups), (case["id"], explained.groups)
            compared += 1
    assert compared >= 1400
