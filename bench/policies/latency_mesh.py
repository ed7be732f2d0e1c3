"""``el`` through the mesh's own parts with sensors in place of the twin's truth, in virtual time (targets T2).

    python -m bench.policies.latency_mesh [POLICY] [SEEDS] [--lag S] [--noise SHARE] [--nodes N] [--first SEED]
        [--agents N]

Pods with limits of 20 and 30 ms come one every 3 s and the oldest leave, so that 30 stay; at two moments all
latencies are drawn anew (``draw_latency``, as in the suite). Each node's agent tries the target every 10 s, each time
off by the noise, and tells their median (of five to 20) every 5 s; the coordinator hears of it ``lag`` late. Offers,
decisions and plans are messages as bytes; agents decide by what those told them.

Of all pods that came while some node was within the soft limit, the share that got such a node: *of all*; *once known*,
leaving out those that came before the change could be known (the lag, then three of five tries and a reading); and of
those *in the open*, where also no node lies nearer to the limit than twice the noise, so that no measurement mistakes
its side. Test seeds from 42 on, mean and s.d. over seeds. No process, no clock: figures do not depend on the machine.
"""

from __future__ import annotations

import argparse
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from lab.environments.placement import MIB, NodeSize, Scenario, draw_latency
from lab.mesh.placement import NamedPolicy
from lab.mesh.world import Agents
from services.coordinator.core.events import NodeSample, NodesMeasured
from shared.agent.target_times import SAMPLES, TargetTimes
from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.model.pod import Pod
from shared.model.resources import CPU, MEMORY, PODS
from shared.wire.readings import ProbeTarget

TARGET = "shop"
SOFT_US, HARD_US = 20_000, 30_000
GAP_S, STAY, PODS_IN_ALL = 3.0, 30, 600
READ_S, TRY_S, STEP_S = 5.0, 10.0, 1.0
CHANGES = 2
FIRST_SEED = 42
LAG_S, NOISE = 15.0, 0.1
PER_NODE = Agents(0)
POD_CLASS = PodClass(
    requests=((CPU, 250), (MEMORY, 64 * MIB)), score_cpu_millis=250, score_memory_bytes=64 * MIB,
    latency_soft_us=SOFT_US, latency_hard_us=HARD_US, latency_target=TARGET,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SensorAccuracy:
    """How well sensors see: seconds that a reading is late, and by which share a try is off (normal, its s.d.)."""

    lag_s: float = LAG_S
    noise: float = NOISE

    @property
    def known_after_s(self) -> float:
        """From a change on: three of the five tries must be new, then it is read, and comes late."""
        return (SAMPLES // 2 + 1) * (TRY_S * 1.1 + STEP_S) + READ_S + self.lag_s


@dataclass(frozen=True, slots=True)
class LatencyResult:
    """Pods that got a node within the soft limit, of those that could have: (got, could)."""

    of_all: tuple[int, int]
    once_known: tuple[int, int]
    in_the_open: tuple[int, int]


class LatencySensors:
    """Each node's own median of what it tried, told late."""

    def __init__(self, nodes: Sequence[str], seen: SensorAccuracy, seed: int) -> None:
        rng = Random(seed)
        self._seen = seen
        self._noise = np.random.default_rng(seed)
        self._times = {name: TargetTimes(rng) for name in nodes}
        for times in self._times.values():
            times.follow([ProbeTarget(TARGET, "host", 443, round(TRY_S * 1000))], -5 * TRY_S)
        self._late: deque[tuple[float, tuple[NodeSample, ...]]] = deque()

    def tried(self, at_s: float, truth_us: Sequence[int]) -> None:
        """What is due is tried."""
        for times, true_us in zip(self._times.values(), truth_us, strict=True):
            for _ in times.due(at_s):
                took_s = true_us / 1e6 * max(0.1, self._noise.normal(1.0, self._seen.noise))
                times.answered(TARGET, took_s, at_s)

    def read(self, at_s: float) -> tuple[NodeSample, ...] | None:
        """Read now; what comes in now, read ``lag_s`` ago."""
        samples = tuple(
            NodeSample(
                name, self._seen.lag_s, None, None, source="agent",
                latencies={one.target: (one.median_us, one.spread_us) for one in times.told(at_s) if one.samples},
            )
            for name, times in self._times.items()
        )  # fmt: skip
        self._late.append((at_s, samples))
        return self._late.popleft()[1] if self._late[0][0] <= at_s - self._seen.lag_s else None


def run(
    policy: str, seed: int, seen: SensorAccuracy, nodes: int = 3, *, pods: int = PODS_IN_ALL, agents: Agents = PER_NODE
) -> LatencyResult:
    """One run."""
    names = [f"n{number}" for number in range(nodes)]
    shown = [Node(name=name, allocatable={CPU: 8000, MEMORY: 16_384 * MIB, PODS: 110}) for name in names]
    world = NamedPolicy(policy).world(shown, agents, seed)
    sensors, draws = LatencySensors(names, seen, seed), np.random.default_rng(seed)
    scenario = Scenario(sizes=(NodeSize(),) * nodes, latency_soft_us=SOFT_US, latency_hard_us=HARD_US)
    truth: list[int] = draw_latency(scenario, draws).tolist()
    began_s, changed_s = world.now + 5 * TRY_S, -1e9
    counts = {"of_all": [0, 0], "once_known": [0, 0], "in_the_open": [0, 0]}
    for second in range(round(-5 * TRY_S), round(pods * GAP_S)):
        at_s = second * STEP_S
        world.rest(for_s=max(0.0, began_s + at_s - world.now))
        sensors.tried(at_s, truth)
        if second % READ_S == 0 and (samples := sensors.read(at_s)) is not None:
            world.tell(NodesMeasured(samples))
            world.rest()
        if second < 0 or second % GAP_S:
            continue
        number = round(second / GAP_S)
        if number and number % (pods // (CHANGES + 1)) == 0:
            truth, changed_s = draw_latency(scenario, draws).tolist(), at_s
        if number >= STAY:
            world.remove(f"p{number - STAY}")
        world.add([Pod(f"p{number}", "default", f"p{number}", "", POD_CLASS, scheduler_name="conclave")])
        world.rest()
        got = truth[names.index(world.node_of(f"p{number}"))] <= SOFT_US
        if min(truth) > SOFT_US:
            continue
        known = at_s - changed_s >= seen.known_after_s
        margin = all(abs(true_us - SOFT_US) > 2 * seen.noise * true_us for true_us in truth)
        for name, counted in (("of_all", True), ("once_known", known), ("in_the_open", known and margin)):
            counts[name][0] += got and counted
            counts[name][1] += counted
    return LatencyResult(*((got, could) for got, could in counts.values()))


def main() -> None:
    """Print the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policy", nargs="?", default="el")
    parser.add_argument("seeds", nargs="?", type=int, default=10)
    parser.add_argument("--lag", type=float, default=LAG_S, help="seconds that readings are late")
    parser.add_argument("--noise", type=float, default=NOISE, help="s.d. of one try, as a share")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--agents", default=str(PER_NODE), help="so many that share the nodes, or per-node")
    parser.add_argument("--first", type=int, default=FIRST_SEED, help="the first seed; 500: of validation")
    given = parser.parse_args()
    seen = SensorAccuracy(given.lag, given.noise)
    agents = Agents.parse(given.agents)
    seeds = range(given.first, given.first + given.seeds)
    found = [run(given.policy, seed, seen, given.nodes, agents=agents) for seed in seeds]
    for name in ("of_all", "once_known", "in_the_open"):
        pairs = [getattr(one, name) for one in found]
        shares = [got / could for got, could in pairs if could]
        spread = statistics.stdev(shares) if len(shares) > 1 else 0.0
        told = f"{statistics.mean(shares):.2%} ± {spread:.2%}" if shares else "no such pod"
        print(
            f"{given.policy}, {given.nodes} nodes, {name.replace('_', ' ')}: {told} of {sum(c for _, c in pairs)} pods"
        )


if __name__ == "__main__":
    main()
