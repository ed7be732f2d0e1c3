"""openb at 130 % demand: all pods of a trace at once, on its nodes. Traces lie in ``$CONCLAVE_SHARED/data/openb``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from bench.quality.world import QualityWorld
from bench.saturation.world import settle_garbage
from lab.traces.gpu_trace import parse_gpu_nodes, parse_gpu_pods
from lab.traces.openb import parse_nodes, parse_pods
from shared.policy.rehearsal.submission import GpuNodes, GpuPods, submission

DATA = Path(os.environ.get("CONCLAVE_SHARED", "../shared")) / "data" / "openb"
NODE_LIST = "openb_node_list_gpu_node.csv"
REST_S = 600.0
Json = dict[str, Any]


class Openb:
    """The nodes, and one list of pods."""

    def __init__(self, trace: str) -> None:
        texts = [(DATA / name).read_text() for name in (NODE_LIST, f"openb_pod_list_{trace}.csv")]
        self.nodes: GpuNodes = parse_gpu_nodes(texts[0], NODE_LIST)
        self.pods: GpuPods = parse_gpu_pods(texts[1], trace, self.nodes)
        self.bodies = parse_nodes(texts[0], NODE_LIST), parse_pods(texts[1], trace)

    def fill(self, world: QualityWorld, seed: int) -> None:
        """Let everything come."""
        for body in self.bodies[0]:
            world.add_node(msgspec.json.decode(msgspec.json.encode(body)))
        world.begin()
        world.rest(30)
        settle_garbage()
        world.phase = "load"
        for number, row in enumerate(submission(self.pods, self.nodes.capacity, seed).tolist()):
            body = msgspec.json.decode(msgspec.json.encode(self.bodies[1][row]))
            body["metadata"]["name"] = f"{body['metadata']['name']}-{number:06}"
            world.add_pod(body)
