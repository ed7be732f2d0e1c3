"""One training episode of ``karma``: steps drawn from the policy of the moment, and what each of them earned.

To everybody's reward (``episodes.team_reward``) each service adds its role's mission, what soft binding says, and a
price per replica changed. An attacker may play along (``attack``). numpy alone, so that workers need no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.autoscaling.episode import Setup, attackable
from lab.learner.autoscaling.episodes import Prices, team_reward
from lab.worlds.services.attacker import ACTIONS, REST, Attacker, AttackerTerms
from shared.autoscaling.networks.agents import KarmaAgents
from shared.autoscaling.networks.features import FEATURES, STEPS, Floats
from shared.autoscaling.networks.karma import Eyes
from shared.autoscaling.roles.organisation import Organisation
from shared.policy.networks import layer_count, mlp

ACTION_STREAM, ATTACK_STREAM = 31, 32
ATTACK_INPUTS = len(FEATURES) + 1
LEFT_SCALE = 5000.0
"""Requests that the budget leaves, in the attacker's input."""


@dataclass(frozen=True, slots=True)
class AttackRollout:
    """What the attacker saw and did, as arrays [decisions, ...]: rows (means of the services' features, and what its
    budget leaves), masks, action taken, its log probability, reward: everybody else's with the sign turned."""

    rows: Floats
    masks: NDArray[np.bool_]
    taken: NDArray[np.int64]
    log_p: NDArray[np.float64]
    rewards: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class AttackPlan:
    """The attacker of an episode: its network, and what it may do."""

    params: Mapping[str, NDArray[np.float32]]
    terms: AttackerTerms


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
    attack: AttackRollout | None = None
    """Of the attacker, where one played."""


def play(
    setup: Setup,
    seed: int,
    params: Mapping[str, NDArray[np.float32]] | None,
    organisation: Organisation,
    prices: Prices,
    agents: KarmaAgents = KarmaAgents.MULTI,
    attack: AttackPlan | None = None,
) -> ScalingRollout:
    """Play the episode of ``seed``; ``params`` None: by the rule by demand, as far as roles and steps let it.
    ``attack``: who attacks meanwhile. ``ConfigError``: in a learned twin nobody can."""
    world, eyes = setup.world(seed), Eyes(organisation)
    rng = np.random.default_rng([seed, ACTION_STREAM])
    layers = layer_count(params) if params is not None else 0
    rows_all: list[Floats] = []
    attacker = None if attack is None else _Attacking(attack, Attacker(attackable(world), budget=attack.terms.budget))
    attack_rng = np.random.default_rng([seed, ATTACK_STREAM])
    masks_all, taken_all, log_all, rewards_all, taught_all = [], [], [], [], []
    while not world.over:
        rows, masks = eyes.look(world.observe())
        taught = _taught(eyes, masks, agents)
        if attacker is not None:
            attacker.act(rows, attack_rng)
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
        team = team_reward(world.seconds, first, prices)
        rewards_all.append(agents.shared(own) + team)
        if attacker is not None:
            attacker.rewards.append(-team)
    return ScalingRollout(
        np.array(rows_all), np.array(masks_all), np.array(taken_all), np.array(log_all), np.array(rewards_all),
        np.array(taught_all), None if attacker is None else attacker.rollout(),
    )  # fmt: skip


class _Attacking:
    """An attacker that plays by its network, and remembers."""

    def __init__(self, plan: AttackPlan, attacker: Attacker) -> None:
        self._plan, self._attacker = plan, attacker
        self._layers = layer_count(plan.params)
        self._allowed = np.array(plan.terms.allowed())
        self._seen: list[tuple[Floats, NDArray[np.bool_], int, float]] = []
        self.rewards: list[float] = []

    def act(self, rows: Floats, rng: np.random.Generator) -> None:
        """Choose by what the services' agents see, among what terms and budget leave."""
        left = self._attacker.left
        mask = self._allowed if left > 0 else np.arange(ACTIONS) == REST
        row = np.append(rows.mean(axis=0), np.float32(np.tanh(left / LEFT_SCALE))).astype(np.float32)
        logits = mlp(self._plan.params, row[None], self._layers).astype(np.float64)
        chosen, log_p = drawn(logits, mask[None], rng)
        self._attacker.act(int(chosen[0]))
        self._seen.append((row, mask, int(chosen[0]), float(log_p[0])))

    def rollout(self) -> AttackRollout:
        rows, masks, chosen, log_p = zip(*self._seen, strict=True)
        return AttackRollout(np.array(rows), np.array(masks), np.array(chosen), np.array(log_p), np.array(self.rewards))


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
