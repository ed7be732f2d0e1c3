"""marl-dqn beside a node that is farther away than the others: choices that move to it, and imbalance.

    .venv/bin/python -m bench.policies.delays [--seeds 42-51] [--agents 1,4,per-node] [--costs 0.02] [--processes 1]

Episodes of the thesis' experiment (``uniform``) with sensors through coordinator, agents and binder as bytes.
*Choices*: while all nodes are 1 ms away, each pod's choice is made anew from what the agents that were asked saw, with
one node (each in turn) at so many ms: the share that changes, and the share that moves to that node. Beside it the same
with the delay as an input of the network, as it was before ADR 0071. *Imbalance*: of whole episodes with one far node,
over that of the same seed where no delay is known; up to 3 ms it is the same, and beyond 20 as at 20. ``--costs``:
what a delay costs at most; the shipped one was chosen on seeds 500-509 (ADR 0071). Virtual time: figures do not depend
on the machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from lab.evaluation.seeds import parse_seeds
from lab.mesh import thesis
from lab.mesh.placement import NamedPolicy
from lab.mesh.world import Agents, MeshWorld
from shared.model.node import Node
from shared.model.pod import Pod
from shared.policy.marl.features import CLIP, DELAY_UNIT_MS
from shared.policy.marl.policy import ACCEPT, DELAY, MOST_DELAY_COST, NAME, REJECT, MarlDqn
from shared.policy.networks import Floats, layer_count, mlp
from shared.policy.observation import Observation, Rng, Verdicts
from shared.policy.weights import shipped

NEAR_MS = 1.0
FAR_MS = (2.0, 5.0, 20.0, 50.0)
PLAYED_MS = (20.0,)
"""Of whole episodes."""
FAR_FROM = (NEAR_MS,) * (thesis.NODES - 1)
WORKLOAD = "uniform"

Seen = list[dict[str, Floats]]
"""By pod, by node: what its agent saw."""


class WatchedMarlDqn(MarlDqn):
    """Keeps what it sees."""

    def __init__(self, seen: Seen) -> None:
        super().__init__(shipped(NAME))
        self._seen = seen

    def decide(self, observation: Observation, rng: Rng) -> Verdicts:
        """As ever."""
        names, rows = observation.table.names, observation.rows.tolist()
        self._seen[-1].update((names[row], one) for row, one in zip(rows, self.features(observation), strict=True))
        return super().decide(observation, rng)


class WatchedWorld(MeshWorld):
    """Begins a new page with each pod."""

    seen: Seen

    def add(self, pods: Iterable[Pod]) -> None:
        """As ever."""
        self.seen.append({})
        super().add(pods)


def costing(cost: float) -> MarlDqn:
    """As shipped, but for what a delay costs at most."""
    policy = MarlDqn(shipped(NAME))
    policy.most_delay_cost = cost
    return policy


@dataclass(frozen=True, slots=True)
class Costing(NamedPolicy):
    """Delays cost so much at most."""

    cost: float = MOST_DELAY_COST

    def make(self) -> MarlDqn:
        """Anew, for one agent."""
        return costing(self.cost)


@dataclass(frozen=True, slots=True)
class Watching(NamedPolicy):
    """Its mesh writes down what agents see."""

    seen: Seen = field(default_factory=list)

    def world(self, nodes: list[Node], agents: Agents, seed: int) -> MeshWorld:
        """One, with all pages for it."""
        world = WatchedWorld(nodes, agents, lambda: WatchedMarlDqn(self.seen), self.ref, seed=seed)
        world.seen = self.seen
        return world


def gains(features: Floats, cost: float | None) -> Floats:
    """What each node is worth; ``cost`` None: with the delay as an input of the network and no cost."""
    arrays = shipped(NAME).arrays
    q = (
        mlp(arrays, features[:, : MarlDqn.inputs], layer_count(arrays))
        if cost is None
        else costing(cost).q_values(features)
    )
    found: Floats = q[:, ACCEPT] - q[:, REJECT]
    return found


def choices(agents: Agents, costs: Sequence[float], seed: int) -> Floats:
    """float [1 + costs, 1 + delays, 2], with the delay shown and by cost: how many choices there were; by ``FAR_MS``
    those that changed and those that moved to the far node."""
    watching = Watching(NAME)
    thesis.episode(watching, WORKLOAD, agents, thesis.SENSORS, seed, (NEAR_MS, *FAR_FROM))
    pages = [np.array([page[name] for name in sorted(page)]) for page in watching.seen]
    seen = np.array([page for page in pages if len(page) == thesis.NODES])
    return np.array([_counted(seen, cost) for cost in (None, *costs)], np.float32)


def _counted(seen: Floats, cost: float | None) -> list[tuple[int, int]]:
    made, far_node = len(seen), np.arange(len(seen)) % thesis.NODES
    near = gains(seen.reshape(-1, seen.shape[2]), cost).reshape(made, -1).argmax(axis=1)
    found = [(made, made)]
    for far_ms in FAR_MS:
        other = seen.copy()
        other[np.arange(made), far_node, DELAY] = min(far_ms / DELAY_UNIT_MS, CLIP)
        chosen = gains(other.reshape(-1, seen.shape[2]), cost).reshape(made, -1).argmax(axis=1)
        changed = chosen != near
        found.append((int(changed.sum()), int((changed & (chosen == far_node)).sum())))
    return found


def imbalance(agents: Agents, costs: Sequence[float], seed: int) -> list[list[float]]:
    """By cost, by ``PLAYED_MS``, over the same without delay."""

    def play(cost: float, delays: tuple[float, ...]) -> float:
        return thesis.episode(Costing(NAME, cost=cost), WORKLOAD, agents, thesis.SENSORS, seed, delays).imbalance

    known = play(MOST_DELAY_COST, ())
    return [[play(cost, (far_ms, *FAR_FROM)) / known for far_ms in PLAYED_MS] for cost in costs]


def lines(seeds: Sequence[int], counts: Sequence[Agents], costs: Sequence[float], processes: int) -> Iterator[str]:
    """The table."""
    whens = ("shown", *(f"cost {cost:g}" for cost in costs))
    yield "changed / to the far node at".ljust(52) + "".join(f"{far_ms:g} ms".rjust(16) for far_ms in FAR_MS)
    with ProcessPoolExecutor(processes) as pool:
        for agents in counts:
            by_when = np.sum(list(pool.map(partial(choices, agents, costs), seeds)), axis=0)
            for when, (made, *sums) in zip(whens, by_when, strict=True):
                title = f"agents {agents}, {when}, of {made[0]:.0f} choices"
                yield title.ljust(52) + "".join(f"{one / made[0]:8.2%} /{to / made[0]:6.2%}" for one, to in sums)
        for agents in counts:
            ratios = np.array(list(pool.map(partial(imbalance, agents, costs), seeds)))
            for cost, means, spreads in zip(costs, ratios.mean(axis=0), ratios.std(axis=0, ddof=1), strict=True):
                told = zip(PLAYED_MS, means, spreads, strict=True)
                title = f"agents {agents}, cost {cost:g}, imbalance over its own"
                yield title.ljust(52) + ", ".join(f"{ms:g} ms: {mean:.3f} (s.d. {sd:.3f})" for ms, mean, sd in told)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", default="42-51")
    parser.add_argument("--agents", default="1,4,per-node")
    parser.add_argument("--costs", type=lambda text: [float(one) for one in text.split(",")], default=[MOST_DELAY_COST])
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    counts = [Agents.parse(text) for text in asked.agents.split(",")]
    for line in lines(parse_seeds(asked.seeds), counts, asked.costs, asked.processes):
        print(line, flush=True)


if __name__ == "__main__":
    main()
