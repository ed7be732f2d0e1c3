"""Pods a second in virtual time where coordinator and agents have a core each, and what cycles that overlap could add.

    .venv/bin/python -m bench.own_cores [--policy kube-default] [--nodes 1000 | --openb] [--shapes 1] [--agents 1,2,4]
        [--set NAME=VALUE]

The cores of both and the messages' codec are real; a turn takes the CPU that it used, an answer the CPU that its agent
used and a hop there and back. A plan is bound 8 ms after it was sent, and never refused: conflicts are counted by
``bench.in_process``. "At most": were the coordinator, or all agents together, never idle, so many times as many; no way
of overlapping cycles (ADR 0045: ``--set open_cycles=4``) gives more. The best of the rounds, since a busy machine only
adds.
"""

from __future__ import annotations

import shared.runtime.process.one_core  # noqa: F401  first: it must be set before numpy is loaded

# isort: split
import argparse
import gc
import os
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from bench.in_process.switches import add_argument, settings_of
from bench.quality.openb import DATA, NODE_LIST
from bench.saturation.world import BIND_S, CoreWorld, settle_garbage
from bench.stand.contest import numbers
from bench.stand.figures import table
from lab.traces.gpu_trace import parse_gpu_nodes, parse_gpu_pods
from lab.traces.openb import parse_nodes, parse_pods
from services.coordinator.core import events as seen
from services.coordinator.core.state import CoreSettings
from shared.policy.rehearsal.submission import submission
from shared.wire.codec import decode, encode
from shared.wire.messages import Offer, ViewUpdate

HOP_S = 0.0002
WARM, REST_S = 64, 600.0
Json = dict[str, Any]
Bodies = tuple[list[Json], Callable[[int], Json]]
"""All nodes, and the pod of a number."""


class OwnCores(CoreWorld):
    """An agent answers when it has done what came before, and this."""

    def __init__(self, *, agents: int, seed: int, policy: str, settings: CoreSettings) -> None:
        super().__init__(agents=agents, seed=seed, policy=policy, settings=settings)
        self.used: defaultdict[str, float] = defaultdict(float)
        """CPU seconds of each agent."""
        self._idle_at: defaultdict[str, float] = defaultdict(float)

    def _ask(self, agent: str, message: Offer | ViewUpdate) -> None:
        core, cpu = self._agents[agent], time.thread_time()
        event: seen.Event
        if isinstance(message, Offer):
            core.now_s = self.now
            event = seen.DecisionsReceived(agent, message.message_id, core.decide(decode(encode(message), Offer)))
        else:
            event = seen.ViewAcked(agent, message.message_id, core.update(decode(encode(message), ViewUpdate)))
        cpu = time.thread_time() - cpu
        self.used[agent] += cpu
        self._idle_at[agent] = max(self.now + HOP_S, self._idle_at[agent]) + cpu
        self.post(event, self._idle_at[agent] + HOP_S - self.now)


@dataclass(frozen=True, slots=True)
class DrainFigures:
    """Of one drain: pods a second; CPU seconds of the coordinator and of all agents, per pod; how much is waiting."""

    pods_per_s: float
    coordinator_s: float
    agents_s: float
    at_most: float


def drained(bodies: Bodies, pods: int, agents: int, policy: str, settings: CoreSettings) -> DrainFigures:
    """All pods at once, on a mesh that has placed some before."""
    world = OwnCores(agents=agents, seed=1, policy=policy, settings=settings)
    for body in bodies[0]:
        world.add_node(_copy(body))
    world.begin()
    world.rest(REST_S)
    world.phase = "warm"
    for number in range(WARM):
        world.add_pod(_named(bodies[1](number), f"warm-{number}"))
    world.rest(REST_S)
    settle_garbage()
    world.phase, before, began = "load", len(world.bound), world.now
    world.used.clear()
    for number in range(pods):
        world.add_pod(_named(bodies[1](number), f"pod-{number:06}"))
    world.rest(REST_S)
    gc.unfreeze()
    placed, took_s = len(world.bound) - before, max(world.bound.values()) - began - BIND_S
    coordinator_s, agents_s = sum(world.turns["load"].cpu_ms) / 1000, sum(world.used.values())
    return DrainFigures(
        placed / took_s, coordinator_s / placed, agents_s / placed, took_s / max(coordinator_s, agents_s / agents)
    )


def alike(nodes: int, shapes: int) -> Bodies:
    """Nodes of 32 cores, and pods of so many shapes."""

    def pod(number: int) -> Json:
        owner = f"app-{number % shapes}"
        amounts = {"cpu": f"{100 + number % shapes}m", "memory": "500Mi"}
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
        return {
            "metadata": {"name": "", "namespace": "bench", "labels": {"app": owner}, "ownerReferences": [reference]},
            "spec": {"schedulerName": "conclave", "containers": [{"name": "c", "resources": {"requests": amounts}}]},
            "status": {"phase": "Pending"},
        }

    has = {"cpu": "32", "memory": "128Gi", "pods": "110"}
    return [{"metadata": {"name": f"n{n}"}, "spec": {}, "status": {"allocatable": has}} for n in range(nodes)], pod


def openb() -> Bodies:
    """The GPU trace of ``$CONCLAVE_SHARED/data/openb``, its default list in the order of seed 1."""
    nodes, pods = ((DATA / name).read_text() for name in (NODE_LIST, "openb_pod_list_default.csv"))
    known = parse_gpu_nodes(nodes, NODE_LIST)
    order = submission(parse_gpu_pods(pods, "default", known), known.capacity, 1).tolist()
    bodies = parse_pods(pods, "default")
    return parse_nodes(nodes, NODE_LIST), lambda number: _copy(bodies[order[number % len(order)]])


def _copy(body: Json) -> Json:
    copied: Json = msgspec.json.decode(msgspec.json.encode(body))
    return copied


def _named(body: Json, name: str) -> Json:
    body["metadata"]["name"] = name
    return body


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.own_cores", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policy", default="kube-default")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--openb", action="store_true", help="the GPU trace instead")
    parser.add_argument("--shapes", type=int, default=1, help="kinds of pods (1)")
    parser.add_argument("--agents", type=numbers, default=[1, 2, 4])
    parser.add_argument("--pods", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=2)
    add_argument(parser)
    options = parser.parse_args()
    settings, _ = settings_of(options.set)
    bodies = openb() if options.openb else alike(options.nodes, options.shapes)
    print(f"{options.policy}, load before {os.getloadavg()[0]:.1f}")
    rows = []
    for agents in options.agents:
        runs = [drained(bodies, options.pods, agents, options.policy, settings) for _ in range(options.rounds)]
        best = max(runs, key=lambda run: run.pods_per_s)
        figures = best.coordinator_s * 1e6, best.agents_s * 1e6
        rows.append([str(agents), f"{best.pods_per_s:,.0f}", *(f"{us:.0f}" for us in figures), f"{best.at_most:.2f}"])
    print(*table(("agents", "pods/s", "coordinator us", "agents us", "at most x"), rows), sep="\n")


if __name__ == "__main__":
    main()
