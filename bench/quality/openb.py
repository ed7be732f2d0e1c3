"""openb at 130 % demand: all pods of a trace at once, on its nodes. Traces lie in ``$CONCLAVE_SHARED/data/openb``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from bench.policies.frag_claims import CLASS, claim_of, gpu_class, slice_of
from bench.quality.world import QualityWorld
from bench.saturation.world import settle_garbage
from lab.traces.gpu_trace import parse_gpu_nodes, parse_gpu_pods
from lab.traces.openb import parse_nodes, parse_pods
from shared.model.gpu_shares import whole_or_share
from shared.model.resources import GPU_MILLI
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

    def fill(self, world: QualityWorld, seed: int, *, claims: bool = False) -> None:
        """Let everything come; ``claims``: GPUs are devices of a driver, asked for by claims."""
        for body in self.bodies[0]:
            node = msgspec.json.decode(msgspec.json.encode(body))
            devices = int(node["status"]["allocatable"].get(GPU_MILLI, 0)) // 1000
            if claims and devices:
                for part in ("allocatable", "capacity"):
                    node["status"][part].pop(GPU_MILLI, None)
                published = slice_of(node["metadata"]["name"], devices)
                world.add_object("resourceslices", published.name, published)
            world.add_node(node)
        if claims:
            world.add_object("deviceclasses", CLASS, gpu_class())
        world.begin()
        world.rest(30)
        settle_garbage()
        world.phase = "load"
        for number, row in enumerate(submission(self.pods, self.nodes.capacity, seed).tolist()):
            body = msgspec.json.decode(msgspec.json.encode(self.bodies[1][row]))
            body["metadata"]["name"] = f"{body['metadata']['name']}-{number:06}"
            milli = int(body["spec"]["containers"][0]["resources"]["requests"].get(GPU_MILLI, 0))
            if not claims or not milli:
                world.add_pod(body)
                continue
            del body["spec"]["containers"][0]["resources"]["requests"][GPU_MILLI]
            name = body["metadata"]["name"]
            claim = replace(claim_of(name, *whole_or_share(milli)), namespace="default", owner=f"uid-{name}")
            world.add_object("resourceclaims", claim.key, claim)
            body["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
            world.claimed[world.add_pod(body)] = milli
