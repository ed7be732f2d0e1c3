"""Episodes of the thesis' experiment played for training: who acts, what is remembered, what it was worth.

Acting is numpy on exported arrays, so an episode can be played in any process and gives the same transitions wherever
it is: the seed, the settings and the weights decide everything. A transition belongs to one decision of all agents
together: their rows, the node that got the pod, every agent's reward (read 15 s after the binding) and the rows of the
next decision. The last decision has no next one; it is dropped, since the cluster does not end there (a cut, no end).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lab.algorithms.dqn import epsilon_greedy
from lab.environments.thesis import ThesisSettings
from lab.worlds.placement.captured_cluster import DrawnEpisode
from lab.worlds.placement.thesis_session import Session
from shared.policy.marl.class_networks import of_classes, run, split
from shared.policy.marl.policy import ACCEPT, REJECT
from shared.policy.marl.reward import BAND_UNIT, balance_potential, balance_reward, band_reward
from shared.policy.marl.single_dqn import single_features
from shared.policy.networks import Floats, Params, layer_count, mlp
from shared.policy.weights import ClassNetworks

Kind = Literal["shared", "per-node", "single"]
Reward = Literal["band", "band+balance", "balance", "local-balance"]
Transitions = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class EpisodeTask:
    """What one episode is; ``epsilon``: how often a feasible node is drawn instead of chosen."""

    seed: int
    kind: Kind = "shared"
    reward: Reward = "balance"
    workload: str = "uniform"
    settings: ThesisSettings = field(default_factory=lambda: ThesisSettings(readings=True))
    metrics: bool = True
    epsilon: float = 0.0
    discount: float = 0.9
    sampled: bool = False
    """The node is drawn by the softmax of what the nodes are wanted, as policy gradients need."""
    drawn: DrawnEpisode | None = None
    """Of a captured cluster: its nodes, pods and faults, in place of ``workload``."""
    classes: ClassNetworks | None = None
    """Which nodes have a network of their own; None: all share one."""

    def session(self) -> Session:
        """As it begins."""
        if self.drawn is None:
            return Session.of(self.workload, self.seed, self.settings, metrics=self.metrics)
        nodes, faults = len(self.drawn.cluster.nodes), self.drawn.faults
        settings = replace(self.settings, nodes=nodes, faults=faults)
        return Session(self.drawn.pods, self.seed, settings, metrics=self.metrics, cluster=self.drawn.cluster)


@dataclass(frozen=True, slots=True)
class PlayedTransitions:
    """Transitions of an episode, and its figures."""

    transitions: Transitions
    imbalance: float
    mean_reward: float


def state_of(kind: Kind, session: Session, classes: ClassNetworks | None = None) -> Floats:
    """float32 [nodes, features], or the centralised baseline's [inputs]; with ``classes`` of nodes last the number of
    the network that judges each."""
    if kind == "single":
        return single_features(session.observation(), session.store)
    seen = session.features()
    if classes is None:
        return seen
    return np.column_stack((seen, of_classes(classes, session.env.table, np.arange(len(seen)))))


def gains(kind: Kind, params: Params, state: Floats, *, by_class: bool = False) -> Floats:
    """float32 [nodes]: how much each node is wanted; ``by_class``: each by the network that its state names last."""
    layers = layer_count(params)
    if kind == "single":
        return mlp(params, state, layers)
    if by_class:
        q = run(split(params), state[:, :-1], state[:, -1])
    elif kind == "shared":
        q = mlp(params, state, layers)
    else:
        q = state
        for index in range(layers):
            q = np.einsum("nf,nfo->no", q, params[f"l{index}.w"]) + params[f"l{index}.b"]
            if index < layers - 1:
                q = np.maximum(q, np.float32(0))
    gain: Floats = q[:, ACCEPT] - q[:, REJECT]
    return gain


def reward_of(kind: Reward, utilisation: NDArray[np.float64], before: NDArray[np.float64], discount: float) -> Floats:
    """float32 [nodes] of one reading. ``before``: utilisation [nodes, 4] at the decision, for shaping by a potential
    (Ng, Harada and Russell 1999): F = discount * phi(after) - phi(before)."""
    if kind == "balance":
        reward = balance_reward(utilisation)
    elif kind == "local-balance":
        reward = balance_potential(utilisation)
    elif kind == "band":
        reward = band_reward(utilisation) / BAND_UNIT
    else:
        shaping = discount * balance_potential(utilisation) - balance_potential(before)
        reward = band_reward(utilisation) / BAND_UNIT + shaping
    return reward.astype(np.float32)


def play(episode: EpisodeTask, params: Params) -> PlayedTransitions:
    """Play one episode to its end."""
    rng = np.random.default_rng([episode.seed, 7])
    session = episode.session()
    states: list[Floats] = []
    masks: list[NDArray[np.bool_]] = []
    actions: list[int] = []
    before: list[NDArray[np.float64]] = []
    while not session.over:
        state, mask = state_of(episode.kind, session, episode.classes), session.mask
        wanted = gains(episode.kind, params, state, by_class=episode.classes is not None)[None]
        if episode.sampled:
            # the greatest is then a draw of the softmax
            wanted = wanted + rng.gumbel(size=wanted.shape).astype(np.float32)
        action = int(epsilon_greedy(wanted, mask[None], episode.epsilon, rng)[0])
        states.append(state)
        masks.append(mask)
        actions.append(action)
        before.append(session.env.load.demand.copy())
        session.place(action)
    rewards = np.zeros((len(actions), session.env.settings.nodes), np.float32)
    for reading in session.env.readings:
        rewards[reading.decision] = reward_of(
            episode.reward, reading.utilisation, before[reading.decision], episode.discount
        )
    transitions = {
        "s_tm1": np.stack(states)[:-1],
        "a_tm1": np.array(actions[:-1], np.int64),
        "r_t": rewards[:-1].mean(axis=1) if episode.kind == "single" else rewards[:-1],
        "discount_t": np.full(len(actions) - 1, episode.discount, np.float32),
        "s_t": np.stack(states)[1:],
        "mask_tm1": np.stack(masks)[:-1],
        "mask_t": np.stack(masks)[1:],
    }
    return PlayedTransitions(transitions, session.env.result().imbalance, float(rewards.mean()))


def merged(parts: list[PlayedTransitions]) -> Mapping[str, NDArray[Any]]:
    """The transitions of many episodes, in their order."""
    return {name: np.concatenate([p.transitions[name] for p in parts]) for name in parts[0].transitions}
