"""The decisions that marl-dqn and its relatives may imitate first: kube-default's on the thesis' pods, or history.

``kube-default`` decides on episodes like those of training; a twin file gives what the captured cluster's scheduler
did, with its own measurements as they would have been known, 15 s late. Both come as these policies' own features.
Networks made for a number of nodes imitate kube-default alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from lab.algorithms.imitation import (
    KUBE_DEFAULT,
    ImitationReport,
    ImitationSettings,
    imitate,
    read_source,
    scale_to,
)
from lab.environments.thesis import ThesisSettings
from lab.evaluation.decisions import Example, RecordedDecisions, collect, shared_best
from lab.learner.marl.networks import AgentsNetwork, LinearStack, SingleNetwork
from lab.learner.marl.rollout import EpisodeTask, play, state_of
from lab.learner.marl.settings import EPISODES_OF_A_SEED, MarlSettings
from lab.learner.marl.training import WORKLOADS, MarlRun
from lab.worlds.placement.measured_world import limits_of
from lab.worlds.placement.replaying import jobs_of
from lab.worlds.placement.table_run import TableRun, repeat_history
from lab.worlds.placement.thesis_session import Session
from shared.errors import ConfigError
from shared.kube.pods.convert import node_from_api
from shared.policy.heuristics import KubeDefault
from shared.policy.marl.features import Observer
from shared.policy.marl.policy import ACCEPT, REJECT
from shared.policy.networks import Floats
from shared.policy.usage.class_usage import REFERENCE
from shared.policy.usage.utilisation import UtilisationStore
from shared.scheduling.state.node_table import PODS_COLUMN, BoolArray
from twin.model.capture import Capture, decode
from twin.model.replay import measured, references

EPISODES = 40
"""Of 105 decisions each."""
MOST_NODES = 64
"""Of a history's candidates for one pod, more are thinned at random."""
LAG_S = 15.0
FIRST_EPISODE = EPISODES_OF_A_SEED // 2
"""Far from those that training plays."""


def decisions_to_imitate(source: str, settings: MarlSettings) -> RecordedDecisions:
    """The examples of ``source``: ``kube-default`` or a twin file. Raises ``ConfigError`` naming what is wrong."""
    if source == KUBE_DEFAULT:
        return _stacked(list(_of_kube_default(settings)))
    if settings.kind != "shared":
        raise ConfigError(
            f"--warm-up: {settings.policy} is made for {settings.nodes} nodes and imitates {KUBE_DEFAULT} only;"
            " marl-dqn takes a history of any number of nodes"
        )
    rng = np.random.default_rng((settings.seed, 5))
    return collect(_of_history(decode(read_source(source), source)), members=MOST_NODES, rng=rng, source=source)


def warm_up(run: MarlRun, source: str, settings: ImitationSettings | None = None) -> Iterator[ImitationReport]:
    """Teach the run's network; its target network and its mean follow at the end. Iterate to the end."""
    decisions = decisions_to_imitate(source, run.settings)
    network = run.learner.online
    assert isinstance(network, AgentsNetwork | SingleNetwork)
    rng = np.random.default_rng((run.settings.seed, 6))
    yield from imitate(network, decisions, settings or ImitationSettings(), rng)
    level, spread = worth(run)
    calibrate(network, decisions, level=level, spread=spread)
    run.learner.target.load_state_dict(network.state_dict())
    run.averaged = run.best = network.stack.arrays()


def worth(run: MarlRun) -> tuple[float, float]:
    """(what going on like now is worth, deviation of the rewards of random choices): the scale of Q-values."""
    s = run.settings
    first = s.seed * EPISODES_OF_A_SEED + FIRST_EPISODE + EPISODES
    network = run.learner.online
    assert isinstance(network, AgentsNetwork | SingleNetwork)
    params = network.stack.arrays()
    own, random = (
        np.concatenate(
            [
                play(
                    EpisodeTask(first + number, s.kind, s.reward, WORKLOADS[number % 2], _settings(s), epsilon=epsilon),
                    params,
                ).transitions["r_t"]
                for number in range(4)
            ]
        )
        for epsilon in (0.0, 1.0)
    )
    return float(own.mean()) / (1 - s.discount), float(random.std())


def calibrate(
    network: AgentsNetwork | SingleNetwork, decisions: RecordedDecisions, *, level: float, spread: float
) -> None:
    """Scale and shift the last layer: outputs get the mean ``level``; what separates nodes, the deviation ``spread``.

    The ranking stays as it was (``scale_to``).
    """
    assert isinstance(network.stack, LinearStack)
    with torch.no_grad():
        q = network.stack(torch.from_numpy(decisions.features))
        gain = q[..., ACCEPT] - q[..., REJECT] if isinstance(network, AgentsNetwork) else q
        present = torch.from_numpy(decisions.present)
        factor = scale_to(spread, gain, present)
        shown = q[present] if isinstance(network, AgentsNetwork) else q
        network.stack.weights[-1].mul_(factor)
        network.stack.biases[-1].mul_(factor).add_(level - factor * float(shown.mean()))


def _settings(settings: MarlSettings) -> ThesisSettings:
    return ThesisSettings(nodes=settings.nodes, readings=True)


def _of_kube_default(settings: MarlSettings) -> Iterator[tuple[Floats, BoolArray, Floats]]:
    teacher = KubeDefault()
    for number in range(EPISODES):
        seed = settings.seed * EPISODES_OF_A_SEED + FIRST_EPISODE + number
        rng = np.random.default_rng([seed, 7])
        session = Session.of(WORKLOADS[number % 2], seed, _settings(settings))
        while not session.over:
            seen = session.observation()
            target = np.zeros(settings.nodes, np.float32)
            target[seen.rows] = shared_best(teacher.decide(seen, rng))
            yield state_of(settings.kind, session), session.mask.copy(), target
            session.place(int(rng.choice(np.flatnonzero(target))))


def _of_history(capture: Capture) -> Iterator[Example]:
    limits = limits_of(capture.nodes)
    names = list(limits)
    seen = measured(capture, names)
    shares = seen / np.maximum(references(limits, seen), 1.0)[:, None, :]
    store = UtilisationStore()
    for name, limit in limits.items():
        store.limits(name, np.array([limit.cpu_millis, limit.memory_bytes, *REFERENCE[2:]]) / np.array(REFERENCE))
    observer = Observer(store)
    told = 0
    for step in TableRun([node_from_api(node) for node in capture.nodes], jobs_of(capture)[0], repeat_history):
        table, rows = step.observation.table, step.observation.rows
        while told < capture.steps and told * capture.step_s <= step.at_s - LAG_S:
            for row, name in enumerate(names):
                if np.isfinite(shares[row, told, 0]):
                    pods = int(table.requested[PODS_COLUMN, table.row_of[name]])
                    values = np.nan_to_num(shares[row, told])
                    store.measure(name, values, at_s=told * capture.step_s, pods=pods)
            told += 1
        store.advance(step.at_s)
        if len(rows) > 1:
            target = np.zeros(len(rows), np.float32)
            target[step.chosen] = 1.0
            yield observer.of(table, step.job.pod_class, rows), target


def _stacked(examples: list[tuple[Floats, BoolArray, Floats]]) -> RecordedDecisions:
    features, present, target = (np.stack(part) for part in zip(*examples, strict=True))
    return RecordedDecisions(features, present, target)
