"""One training episode of ``karma``: steps drawn from the policy of the moment, and what each of them earned.

To everybody's reward (``episodes.team_reward``) each service adds its role's mission, what soft binding says, and a
price per replica changed. numpy alone, so that workers need no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.autoscaling.episode import Setup
from lab.learner.autoscaling.episodes import Prices, team_reward
from shared.autoscaling.networks.agents import KarmaAgents
from shared.autoscaling.networks.features import STEPS, Floats
from shared.autoscaling.networks.karma import Eyes
from shared.autoscaling.roles.organisation import Organisation
from shared.policy.networks import layer_count, mlp

ACTION_STREAM = 31


@dataclass(frozen=True, slots=True)
class ScalingRollout:
    """An episode as arrays. Leading axes [decisions, agents]: features, masks, action taken (index), its log
    probability, reward; ``taught`` the action (index) that comes nearest to the rule."""

    rows: Floats
    masks: NDArray[np.bool_]
    taken: NDArray[np.int64]
    log_p: NDArray[np.float64]
    rewards: NDArray[np.float64]
    taught: NDArray[np.int64]


def play(
    setup: Setup,
    seed: int,
    params: Mapping[str, NDArray[np.float32]] | None,
    organisation: Organisation,
    prices: Prices,
    agents: KarmaAgents = KarmaAgents.MULTI,
) -> ScalingRollout:
    """Play the episode of ``seed``; ``params`` None: by the rule by demand, as far as roles and steps let it."""
    world, eyes = setup.world(seed), Eyes(organisation)
    rng = np.random.default_rng([seed, ACTION_STREAM])
    layers = layer_count(params) if params is not None else 0
    rows_all: list[Floats] = []
    masks_all, taken_all, log_all, rewards_all, taught_all = [], [], [], [], []
    while not world.over:
        rows, masks = eyes.look(world.observe())
        taught = _taught(eyes, masks, agents)
        rows, masks = agents.joined(rows), agents.joined(masks)
        if params is None:
            taken, log_p = taught, np.zeros(len(taught))
        else:
            taken, log_p = drawn(mlp(params, rows, layers).astype(np.float64), masks, rng)
        signals, roles, graph = eyes.signals, eyes.roles, eyes.graph
        steps = agents.steps(taken, len(signals))
        own = np.array(
            [
                organisation.reward(one, roles[name], graph, STEPS[at]) - prices.change * abs(STEPS[at])
                for (name, one), at in zip(signals.items(), steps.tolist(), strict=True)
            ]
        )
        world.apply(eyes.step(steps))
        first = world.now_s
        world.run(setup.decide_s)
        rows_all.append(rows)
        masks_all.append(masks)
        taken_all.append(taken)
        log_all.append(log_p)
        taught_all.append(taught)
        rewards_all.append(agents.shared(own) + team_reward(world.seconds, first, prices))
    return ScalingRollout(
        np.array(rows_all), np.array(masks_all), np.array(taken_all), np.array(log_all), np.array(rewards_all),
        np.array(taught_all),
    )  # fmt: skip


def _taught(eyes: Eyes, masks: NDArray[np.bool_], agents: KarmaAgents) -> NDArray[np.int64]:
    """The allowed action [agents] that comes nearest to what the rule wants; of one agent, by the most replicas."""
    gaps = np.array([[float(eyes.targets[name] - one.replicas)] for name, one in eyes.signals.items()])
    nearer = np.abs(gaps) - np.abs(np.array(STEPS)[None, :] - gaps) - np.where(masks, 0.0, 100.0)
    found: NDArray[np.int64] = agents.joined(nearer).argmax(axis=1)
    return found


def drawn(
    logits: NDArray[np.float64], masks: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Steps by their probabilities (the Gumbel trick), and the logarithms of these."""
    logits = np.where(masks, logits, -np.inf)
    top = logits.max(axis=1, keepdims=True)
    log_p = logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
    taken = (log_p + rng.gumbel(size=log_p.shape)).argmax(axis=1)
    return taken, log_p[np.arange(len(taken)), taken]
