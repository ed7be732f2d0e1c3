"""What agents on each node cost the leader beside pods: one that registers anew, and a node that changes.

    python -m bench.parts.many_agents [--nodes 1000,5000] [--times 50]

CPU of the coordinator's core in virtual time, ms of each event with all that follows from it until it rests, mean and
99th percentile (not of HTTP, nor of reading messages from etcd and the API server). ``registered``: an agent was
started again, so it is told of its node anew; ``heartbeat``: a node's status came, and nothing of it matters here;
``changed``: a node's labels changed; ``pod``: a lone pod, with as many of the others between any two as come in a
second where each agent is started again once a day, each node tells its status every five minutes, and is changed every
hour.
"""

from __future__ import annotations

import shared.runtime.process.one_core  # noqa: F401  first: it must be set before numpy is loaded

# isort: split
import argparse
from collections.abc import Callable
from itertools import count
from statistics import fmean
from typing import Any

from bench.few_agents import OneNodeAgents
from bench.quality.scenes import standing, unlike
from bench.saturation import load
from bench.saturation.world import settle_garbage
from bench.stand.contest import numbers
from bench.stand.figures import quantile, table
from services.coordinator.core import events as seen
from services.coordinator.core.state import CoreSettings
from shared.model.cluster_events import NodeUpserted
from shared.wire.records import AgentRecord

DAY_S, STATUS_S, CHANGED_S = 86_400, 300, 3600


class ManyAgents(OneNodeAgents):
    """Whose agents are started again and whose nodes change."""

    def __init__(self, nodes: int, policy: str) -> None:
        super().__init__(nodes, policy=policy, seed=1, settings=CoreSettings())
        self._starts = dict.fromkeys(self._agents, 0)
        self._count = count()
        for number in range(nodes):
            self.add_node(load.node(f"node-{number:05}", number))
        standing(self, nodes)
        self.begin()
        self.rest(60)
        settle_garbage()

    def registered(self) -> None:
        """One agent, in turn."""
        self._starts[list(self._starts)[next(self._count) * 7919 % len(self._starts)]] += 1
        homes = zip(self._starts.items(), self._nodes, strict=True)
        records = [
            AgentRecord(id=name, url=name, incarnation=f"{name}-{n}" if n else name, node=home)
            for (name, n), home in homes
        ]
        self.post(seen.AgentsChanged(tuple(records)))

    def heartbeat(self) -> None:
        """Of one node, in turn."""
        self.post(NodeUpserted(self._node(self._body())))

    def changed(self) -> None:
        """One node, in turn."""
        body = self._body()
        body["metadata"]["labels"]["changed"] = str(next(self._count))
        self.post(NodeUpserted(self._node(body)))

    def pod(self) -> None:
        """A lone pod."""
        self.add_pod(unlike(next(self._count)))

    def _body(self) -> dict[str, Any]:
        number = next(self._count) * 7919 % len(self._nodes)
        return load.node(f"node-{number:05}", number)

    def cost_ms(self, *events: Callable[[], None]) -> float:
        """Of these events together."""
        self.phase = f"event {next(self._count)}"
        for event in events:
            event()
        assert self.rest(60)
        return sum(self.turns[self.phase].cpu_ms)


def main() -> None:
    """Play and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.parts.many_agents", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--nodes", type=numbers, default=[1000, 5000])
    parser.add_argument("--policy", default="kube-default")
    parser.add_argument("--times", type=int, default=50)
    options = parser.parse_args()
    lines = []
    for nodes in options.nodes:
        world = ManyAgents(nodes, options.policy)
        for name in ("registered", "heartbeat", "changed", "pod"):
            of = getattr(world, name)
            costs = []
            for number in range(options.times):
                if name == "pod":  # what comes in a second between two pods is not of the pod
                    for every_s, event in (
                        (DAY_S, world.registered), (STATUS_S, world.heartbeat), (CHANGED_S, world.changed),
                    ):  # fmt: skip
                        due = int((number + 1) * nodes / every_s) - int(number * nodes / every_s)
                        if due:
                            world.cost_ms(*[event] * due)
                costs.append(world.cost_ms(of))
            line = (f"{nodes} agents, {name}", f"{fmean(costs):.2f}", f"{quantile(costs, 99):.2f}")
            lines.append(line)
            print(*line, sep="  ", flush=True)
    print(*table(("event", "ms", "p99"), lines), sep="\n")


if __name__ == "__main__":
    main()
