"""marl-dqn beside a node that is farther away than the others: choices that move to it, pods there, imbalance.

    .venv/bin/python -m bench.delays [--seeds 42-51] [--agents 1,4,per-node] [--processes 1]

*Choices*: along episodes of the thesis' experiment (``uniform``; one decider, all nodes 1 ms away) each choice is made
anew with one node at so many ms: the share that changes, and the share that moves to that node. Beside it the same with
the delay shown to the network as it was before ADR 0071. *Mesh*: whole episodes with sensors through coordinator,
agents and binder as bytes; pods on the far node, and imbalance, over those of the same seed where no delay is known.
Virtual time: figures do not depend on the machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

from lab.evaluation.seeds import parse_seeds
from lab.mesh import thesis
from lab.mesh.placement import Named
from lab.mesh.world import Agents
from lab.worlds.placement.thesis_session import Session
from shared.policy.marl.features import CLIP, DELAY_UNIT_MS
from shared.policy.marl.policy import ACCEPT, DELAY, NAME, REJECT, MarlDqn
from shared.policy.networks import Floats, layer_count, mlp
from shared.policy.weights import shipped

NEAR_MS = 1.0
FAR_MS = (2.0, 5.0, 20.0, 50.0)
EPISODES = 4
"""Of those whose single choices are made anew."""


def gains(policy: MarlDqn, features: Floats, *, shown: bool) -> Floats:
    """What each node is worth; ``shown``: with the delay as an input of the network and no cost."""
    arrays = shipped(NAME).arrays
    q = mlp(arrays, features, layer_count(arrays)) if shown else policy.q_values(features)
    found: Floats = q[:, ACCEPT] - q[:, REJECT]
    return found


def choices(seed: int, *, shown: bool) -> tuple[int, dict[float, tuple[int, int]]]:
    """(choices, by delay: those that changed, those that moved to the far node), each node being it in turn."""
    session = Session.of("uniform", seed)
    policy, made = MarlDqn(shipped(NAME), session.store), 0
    found = dict.fromkeys(FAR_MS, (0, 0))
    while not session.over:
        features = policy.features(session.observation())
        features[:, DELAY] = NEAR_MS / DELAY_UNIT_MS
        near = int(gains(policy, features, shown=shown).argmax())
        node = made % len(features)
        for far_ms, (changed, moved) in found.items():
            other = features.copy()
            other[node, DELAY] = min(far_ms / DELAY_UNIT_MS, CLIP)
            chosen = int(gains(policy, other, shown=shown).argmax())
            found[far_ms] = changed + (chosen != near), moved + (chosen != near and chosen == node)
        made += 1
        session.place(int(session.observation().rows[near]))
    return made, found


def through_mesh(agents: Agents, seed: int) -> list[tuple[float, float]]:
    """(pods on the far node, imbalance), each over the same without delay, by ``FAR_MS``."""
    play = partial(thesis.episode, Named(NAME), "uniform", agents, thesis.SENSORS, seed)
    known = play(())
    far = [play((far_ms, *(NEAR_MS,) * (thesis.NODES - 1))) for far_ms in FAR_MS]
    return [(one.placed[0] / known.placed[0], one.imbalance / known.imbalance) for one in far]


def lines(seeds: Sequence[int], counts: Sequence[Agents], processes: int) -> Iterator[str]:
    """The tables."""
    yield "choices".ljust(34) + "".join(f"{far_ms:g} ms".rjust(16) for far_ms in FAR_MS)
    for shown in (True, False):
        runs = [choices(seed, shown=shown) for seed in seeds[:EPISODES]]
        made = sum(run[0] for run in runs)
        sums = [np.sum([run[1][far_ms] for run in runs], axis=0) / made for far_ms in FAR_MS]
        title = f"{'before' if shown else 'now'}: of {made} changed / to it"
        yield title.ljust(34) + "".join(f"{changed:8.2%} /{moved:6.2%}" for changed, moved in sums)
    with ProcessPoolExecutor(processes) as pool:
        for agents in counts:
            means = np.mean(list(pool.map(partial(through_mesh, agents), seeds)), axis=0)
            title = f"mesh, agents {agents}: pods / imbalance"
            yield title.ljust(34) + "".join(f"{pods:8.3f} /{imbalance:6.3f}" for pods, imbalance in means)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", default="42-51")
    parser.add_argument("--agents", default="1,4,per-node")
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    counts = [Agents.parse(text) for text in asked.agents.split(",")]
    for line in lines(parse_seeds(asked.seeds), counts, asked.processes):
        print(line, flush=True)


if __name__ == "__main__":
    main()
