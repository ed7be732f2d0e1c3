"""What a standing pod costs a service that accounts for the whole cluster: memory, and the collector's pauses.

    .venv/bin/python -m bench.standing_pods [--pods 50000] [--nodes 1000]

Pods come as the API server sends them, decoded and taken in as coordinator and binder do it. ``tracked``: objects that
a full collection of the garbage collector visits; ``pause``: its CPU time, which stops everything. No I/O.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import time
from typing import Any

import msgspec

from shared.kube import objects as api
from shared.kube.convert import node_from_api, pod_from_api
from shared.scheduling.state.cluster_state import ClusterState


def node(number: int) -> dict[str, Any]:
    """As the API server shows it."""
    capacity = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    metadata = {"name": f"node-{number}", "uid": f"n{number}", "resourceVersion": "1"}
    status = {"allocatable": capacity, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": metadata, "spec": {}, "status": status}


def pod(number: int, nodes: int) -> dict[str, Any]:
    """Bound, a copy of one of twenty workloads."""
    requests = {"cpu": f"{10 + number % 20}m", "memory": "8Mi"}
    labels = {"app": f"app-{number % 20}", "tier": "web"}
    return {
        "metadata": {"name": f"p{number}", "namespace": "default", "uid": f"u{number}", "labels": labels},
        "spec": {
            "nodeName": f"node-{number % nodes}",
            "schedulerName": "conclave",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}],
        },
        "status": {"phase": "Running"},
    }


def resident_mb() -> float:
    """Greatest resident set of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Take pods in, then collect."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    options = parser.parse_args()
    state = ClusterState()
    nodes, pods = msgspec.json.Decoder(api.Node), msgspec.json.Decoder(api.Pod)
    for number in range(options.nodes):
        state.upsert_node(node_from_api(nodes.decode(json.dumps(node(number)))))
    gc.collect()
    gc.freeze()
    before_mb, before_s = resident_mb(), time.process_time()
    for number in range(options.pods):
        state.observe(pod_from_api(pods.decode(json.dumps(pod(number, options.nodes)))))
    took_s = time.process_time() - before_s
    gc.collect()
    tracked, started_s = len(gc.get_objects()), time.process_time()
    gc.collect()
    figures = {
        "pods": options.pods,
        "tracked": tracked,
        "pause_cpu_ms": round((time.process_time() - started_s) * 1000, 2),
        "bytes_per_pod": round((resident_mb() - before_mb) * 2**20 / options.pods),
        "take_in_cpu_us_per_pod": round(took_s / options.pods * 1e6, 1),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
