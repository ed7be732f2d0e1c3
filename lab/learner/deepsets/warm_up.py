"""The decisions that ``ee``, ``lb`` and ``el`` may imitate first: kube-default's on the training scenarios, or history.

``kube-default`` decides on the very scenarios that training draws, from the same seeds; a twin file gives what the
captured cluster's scheduler did. Both come as this policy's own features.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from lab.algorithms.imitation import (
    KUBE_DEFAULT,
    ImitationReport,
    ImitationSettings,
    imitate,
    read_source,
    scale_to,
)
from lab.environments.placement_rewards import REWARDS, place_and_judge
from lab.environments.placement_scenarios import MOST_TRAINING_NODES
from lab.evaluation.decisions import Example, RecordedDecisions, collect, from_history, taught_by
from lab.learner.deepsets.network import DeepSetsQ
from lab.learner.deepsets.ppo import PpoRun
from lab.learner.deepsets.settings import DeepSetsSettings
from lab.learner.deepsets.training import DeepSetsRun, training_env
from lab.worlds.placement.placement_rollout import choose
from shared.policy.deepsets.features import node_features
from shared.policy.heuristics import KubeDefault
from shared.policy.observation import Observation
from twin.model.capture import decode

EPISODES = 40
"""Of up to 150 decisions each: some 5,000, DL2's order of magnitude."""
CALIBRATION_EPISODES = 20


def decisions_to_imitate(source: str, settings: DeepSetsSettings) -> RecordedDecisions:
    """The examples of ``source``: ``kube-default`` or a twin file. Raises ``ConfigError`` naming what is wrong."""
    rng = np.random.default_rng((settings.seed, 5))
    examples = (
        _of_kube_default(settings)
        if source == KUBE_DEFAULT
        else from_history(decode(read_source(source), source), node_features)
    )
    return collect(examples, members=MOST_TRAINING_NODES, rng=rng, source=source)


def warm_up(
    run: DeepSetsRun | PpoRun, source: str, settings: ImitationSettings | None = None
) -> Iterator[ImitationReport]:
    """Teach the run's network; of deep Q-learning the target network follows at the end. Iterate to the end."""
    decisions = decisions_to_imitate(source, run.settings)
    rng = np.random.default_rng((run.settings.seed, 6))
    if isinstance(run, PpoRun):  # what imitation teaches are the logits of a policy already
        yield from imitate(run.actor, decisions, settings or ImitationSettings(), rng)
        return
    yield from imitate(run.learner.online, decisions, settings or ImitationSettings(), rng)
    level, spread = worth(run.settings)
    assert isinstance(run.learner.online, DeepSetsQ)
    calibrate(run.learner.online, decisions, level=level, spread=spread)
    run.learner.target.load_state_dict(run.learner.online.state_dict())


def worth(settings: DeepSetsSettings) -> tuple[float, float]:
    """(what acting as kube-default is worth, deviation of the rewards of random choices): the scale of Q-values.

    The first is the mean reward over 1 - discount, the value of going on like that for ever.
    """
    reward, teacher = REWARDS[settings.policy], KubeDefault()
    taught, random = [], []
    for episode in range(CALIBRATION_EPISODES):
        rng, env = training_env(settings, 8, episode)
        for rows in env.offers():
            if episode % 2:
                random.append(place_and_judge(env, int(rng.choice(rows)), reward)[1].reward)
            else:
                verdicts = teacher.decide(Observation(env.seen, env.pod_class, rows), rng)
                taught.append(place_and_judge(env, int(rows[choose(verdicts, rng)]), reward)[1].reward)
    scale = settings.reward_scale
    return float(np.mean(taught)) * scale / (1 - settings.discount), float(np.std(random)) * scale


def calibrate(network: DeepSetsQ, decisions: RecordedDecisions, *, level: float, spread: float) -> None:
    """Scale and shift the last layer: the mean Q over ``decisions`` becomes ``level``, their mean deviation ``spread``.

    The ranking stays as it was (``scale_to``).
    """
    with torch.no_grad():
        present = torch.from_numpy(decisions.present)
        q = network(torch.from_numpy(decisions.features), present)
        factor = scale_to(spread, q, present)
        last = network.layers[-1]
        assert isinstance(last, nn.Linear)
        for parameter in last.parameters():
            parameter.mul_(factor)
        last.bias.add_(level - factor * float(q.masked_fill(~present, torch.nan).nanmean(dim=1).mean()))


def _of_kube_default(settings: DeepSetsSettings) -> Iterator[Example]:
    teacher = KubeDefault()
    for episode in range(EPISODES):
        rng, env = training_env(settings, 7, episode)
        for rows in env.offers():
            seen = Observation(env.seen, env.pod_class, rows)
            if len(rows) > 1:
                yield taught_by(teacher, seen, node_features, rng)
            env.place(int(rows[choose(teacher.decide(seen, rng), rng)]))
