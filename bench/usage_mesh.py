"""The thesis' experiment through the mesh's own parts, in virtual time: coordinator, four agents, messages as bytes.

    .venv/bin/python -m bench.usage_mesh [POLICY] [SEEDS] [metrics|sensors]

Pods of targets T3 come to four nodes; every 15 s the coordinator hears of each node's cpu and memory, as
``metrics.k8s.io`` tells them, and of neither disk nor network. With ``sensors`` it hears of all four every 5 s, as
agents' sensors tell them, 15 s late and with 10 % noise. Prints the imbalance (time mean of the s.d. over nodes
of the highest of all four parts), mean and s.d. over the test seeds from 42 on, and the bytes of offers per pod. No
process, no clock: the figures do not depend on the machine.
"""

from __future__ import annotations

import heapq
import statistics
import sys
from dataclasses import dataclass

import numpy as np

from lab.environments.node_load import NodeLoad
from lab.environments.thesis_workload import NODE_LIMITS, Draws, EnvPod, thesis_pods, usage_array
from services.coordinator.core.events import NodeSample, NodesMeasured, PointerSeen
from services.coordinator.core.instructions import SendOffer
from shared.policy.marl.policy import NAME
from shared.policy.registry import make_policy
from shared.policy.usage.class_usage import FloatArray
from shared.policy.usage.views import MOST_SHARE
from shared.wire.codec import encode
from shared.wire.records import PolicyPointer, PolicyRef
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene

NODES = 4
EVERY_S = 15.0
START_DELAY_S = 1.0
FIRST_SEED = 42
SAMPLES = 60
SENSORS_S, LAG_S, NOISE = 5.0, 15.0, 0.1
_ARRIVE, _START, _END, _SAMPLE = range(4)


@dataclass(frozen=True, slots=True)
class Result:
    """``imbalance`` as in targets T3; ``offer_bytes`` per pod, over all agents."""

    imbalance: float
    offer_bytes: float


def scene(policy: str, seed: int) -> Scene:
    """A mesh at rest, deciding by ``policy``."""
    made = Scene(agents=NODES, seed=seed)
    for number in range(NODES):
        made.add_node(make_node(f"worker-{number}").allocatable(cpu="4", memory="8G", pods="110").node())
    made.begin()
    made.run()
    ref = PolicyRef(policy, 1, "a" * 64 if policy == NAME else "")
    for agent in made.agents.values():
        if policy == NAME:
            agent.lanes.use(ref, make_policy(NAME))
    made.inbox.append(PointerSeen(PolicyPointer(active=ref, number=1)))
    made.run()
    return made


def run(policy: str, workload: str, seed: int, *, sensors: bool = False) -> Result:
    """One episode."""
    every_s, noise, seen = SENSORS_S if sensors else EVERY_S, np.random.default_rng(seed), []
    made, load = scene(policy, seed), NodeLoad(NODES)
    started_s, pods = made.now, thesis_pods(workload, Draws(seed), nodes=NODES)
    events: list[tuple[float, int, int, EnvPod | None, int]] = []
    for number, pod in enumerate(pods):
        heapq.heappush(events, (pod.at_s, _ARRIVE, number, pod, -1))
    for number in range(round(SAMPLES * EVERY_S / every_s)):
        heapq.heappush(events, (1.0 + number * every_s, _SAMPLE, number, None, -1))
    left, last_s = len(pods), 0.0
    while left:
        at_s, what, number, due, node = heapq.heappop(events)
        made.run(until_s=max(0.0, started_s + at_s - made.now))
        if what == _SAMPLE or due is None:
            if not sensors:
                made.deliver(NodesMeasured(samples(load)))
                continue
            seen.append(shares(load) * np.maximum(0.0, noise.normal(1.0, NOISE, (NODES, 4))))
            if len(seen) > LAG_S / SENSORS_S:
                made.deliver(NodesMeasured(read(seen.pop(0))))
            continue
        delta = usage_array(due.usage) / NODE_LIMITS
        if what == _ARRIVE:
            asked = make_pod(f"p{number}").cpu("100m").memory("64Mi")
            asked.json["metadata"]["labels"] = {"app": due.pod_class.workload}
            made.add_pod(asked.pod())
            made.run()
            node = int(made.bindings[-1][1].removeprefix("worker-"))
            heapq.heappush(events, (at_s + START_DELAY_S, _START, number, due, node))
        elif what == _START:
            load.change(at_s, node, delta)
            heapq.heappush(events, (at_s + due.duration_s, _END, number, due, node))
        else:
            load.change(at_s, node, -delta)
            made.delete_pod(f"uid-p{number}")
            left, last_s = left - 1, at_s
    load.advance(last_s)
    sent = sum(len(encode(send.offer)) for send in made.of(SendOffer))
    return Result(load.imbalance_area / last_s, sent / len(pods))


def samples(load: NodeLoad) -> tuple[NodeSample, ...]:
    """What the metrics API would tell now."""
    used = np.minimum(load.demand, min(1.0, MOST_SHARE)) * NODE_LIMITS
    return tuple(NodeSample(f"worker-{n}", 0.0, round(used[n, 0]), round(used[n, 1])) for n in range(NODES))


def shares(load: NodeLoad) -> FloatArray:
    """[nodes, 4]: what sensors would read now."""
    found: FloatArray = np.minimum(load.demand, min(1.0, MOST_SHARE))
    return found


def read(used: FloatArray) -> tuple[NodeSample, ...]:
    """What agents tell of a reading that is ``LAG_S`` old."""
    return tuple(
        NodeSample(
            f"worker-{n}", LAG_S, round(used[n, 0] * NODE_LIMITS[0]), round(used[n, 1] * NODE_LIMITS[1]),
            float(used[n, 2]), float(used[n, 3]), source="agent", latencies={},
        )
        for n in range(NODES)
    )  # fmt: skip


def main() -> None:
    """Print the table."""
    policy = sys.argv[1] if len(sys.argv) > 1 else NAME
    sensors = len(sys.argv) > 3 and sys.argv[3] == "sensors"
    seeds = range(FIRST_SEED, FIRST_SEED + (int(sys.argv[2]) if len(sys.argv) > 2 else 10))
    for workload in ("uniform", "random"):
        found = [run(policy, workload, seed, sensors=sensors) for seed in seeds]
        values = [one.imbalance for one in found]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        per_pod = statistics.mean(one.offer_bytes for one in found)
        print(
            f"{policy}, {workload}: {statistics.mean(values):.4f} ± {spread:.4f}, {per_pod:.0f} bytes of offers a pod"
        )


if __name__ == "__main__":
    main()
