"""Proximal policy optimisation with masks: the advantages of a roll-out, then some epochs of clipped steps over it.

The policy is a softmax over the allowed actions. ``advantages``, ``surrogate`` and ``learn`` are what every trainer
that learns this way runs; it brings the networks and says what they make of a batch (``Evaluated``). ``PpoLearner`` is
the plain case, an actor and a critic over transitions. Leading axes are the steps, then the agents where there are
several.

Sources: Schulman et al. 2017 (PPO), Schulman et al. 2016 (generalised advantages), Huang and Ontanon 2022 (masks), de
Witt et al. 2020 (agents that each learn from their own reward).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lab.algorithms.descent import UpdateStats, descend

FloatArray = NDArray[np.float32]
Float = TypeVar("Float", np.float32, np.float64)
FORBIDDEN = -1e9
"""The logit of an action that may not be taken: its chance is 0, and so is its gradient."""


@dataclass(frozen=True, slots=True)
class PpoSettings:
    """The published defaults (Schulman et al. 2017, table 3), with Adam's step of our other learners."""

    learning_rate: float = 1e-3
    horizon: int = 512
    """Decisions between two updates, at least."""
    epochs: int = 4
    batch_size: int = 64
    clip: float = 0.2
    trace: float = 0.95
    """Lambda of the advantages."""
    entropy: float = 0.01
    value_weight: float = 0.5
    gradient_norm: float = 0.5


class Weighing(Protocol):
    """What ``learn`` asks of a run's settings."""

    @property
    def epochs(self) -> int: ...

    @property
    def clip(self) -> float: ...

    @property
    def entropy(self) -> float: ...

    @property
    def value_weight(self) -> float: ...


class Evaluated(NamedTuple):
    """A batch as the networks see it now: the log probability of what was done, the policy's mean entropy, values."""

    log_p: Tensor
    entropy: Tensor
    value: Tensor


class Stepped(NamedTuple):
    """What one step of ``learn`` was like; ``clipped``: the share of actions whose ratio was cut."""

    loss: float
    entropy: float
    clipped: float
    value_loss: float
    gradient_norm: float


def advantages(
    r_t: NDArray[Float], discount_t: NDArray[Float], value_tm1: NDArray[Float], value_t: NDArray[Float],
    last: NDArray[np.bool_], *, trace: float,
) -> NDArray[Float]:  # fmt: skip
    """Generalised advantages ``[steps]`` or ``[steps, agents]``; ``discount_t`` and ``last`` are ``[steps]``. ``last``:
    nothing of the same episode follows this step."""
    found = np.zeros_like(r_t)
    following = np.zeros_like(r_t[0])
    for step in range(len(r_t) - 1, -1, -1):
        error = r_t[step] + discount_t[step] * value_t[step] - value_tm1[step]
        following = error + (0 if last[step] else discount_t[step] * trace * following)
        found[step] = following
    return found


def advantages_of_cut(
    rewards: NDArray[np.float64], values: NDArray[np.float64], discount: float, trace: float
) -> NDArray[np.float64]:
    """``advantages`` of an episode that is cut, not over: what would have come after its last decision is valued as
    that one's state."""
    following, last = np.concatenate((values[1:], values[-1:])), np.arange(len(values)) == len(values) - 1
    return advantages(rewards, np.full(len(values), discount), values, following, last, trace=trace)


def normalised(advantage: Tensor) -> Tensor:
    """With mean 0 and standard deviation 1."""
    return (advantage - advantage.mean()) / (advantage.std() + 1e-6)


def masked(logits: Tensor, mask: Tensor) -> Tensor:
    """Logarithms of the chances ``[..., actions]``."""
    return logits.masked_fill(~mask, FORBIDDEN).log_softmax(dim=-1)


def taken(log_all: Tensor, actions: Tensor) -> Tensor:
    """The log probability of ``actions`` ``[...]``."""
    return log_all.gather(-1, actions[..., None]).squeeze(-1)


def entropy_of(log_all: Tensor) -> Tensor:
    """The mean entropy of what ``masked`` gives."""
    return -(log_all.exp() * log_all.clamp_min(-50.0)).sum(-1).mean()


def surrogate(log_ratio: Tensor, advantage: Tensor, clip: float) -> tuple[Tensor, float]:
    """The clipped gain, and the share of actions that were clipped. ``log_ratio``: of chances now to chances then."""
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    return torch.minimum(ratio * advantage, clipped * advantage).mean(), float((ratio != clipped).float().mean())


def learn(
    judge: Callable[[Tensor], Evaluated], log_p: Tensor, advantage: Tensor, wanted: Tensor, settings: Weighing,
    step: Callable[[Tensor], float], rng: np.random.Generator, *, batch: int, axis: int = 0,
) -> list[Stepped]:  # fmt: skip
    """Epochs of clipped steps over one roll-out, ``batch`` places of ``axis`` at a time in random order.

    ``judge`` is given the places; ``log_p``: of what was done, when it was done; ``wanted``: what values are to be;
    ``step`` descends a loss and gives the gradient's norm.
    """
    found = []
    for _ in range(settings.epochs):
        for at in torch.split(torch.from_numpy(rng.permutation(wanted.shape[axis])), batch):
            before, better, target = (one[:, at] if axis else one[at] for one in (log_p, advantage, wanted))
            now = judge(at)
            gain, clipped = surrogate(now.log_p - before, better, settings.clip)
            value_loss = nn.functional.mse_loss(now.value, target)
            loss = settings.value_weight * value_loss - gain - settings.entropy * now.entropy
            norm = step(loss)
            found.append(
                Stepped(float(loss.detach()), float(now.entropy.detach()), clipped, float(value_loss.detach()), norm)
            )
    return found


class PpoLearner:
    """An actor that gives a logit per action, a critic that gives a value, and their optimiser.

    Both are modules ``forward(s, mask)``: ``[batch, actions]``, and ``[batch]`` or a value per agent. ``done``: the log
    probability of what was done, by those of all actions.
    """

    def __init__(
        self, actor: nn.Module, critic: nn.Module, settings: PpoSettings,
        done: Callable[[Tensor, Tensor], Tensor] = taken,
    ) -> None:  # fmt: skip
        self.actor = actor
        self.critic = critic
        self.settings = settings
        self._done = done
        self._parameters = [*actor.parameters(), *critic.parameters()]
        self._optimiser = torch.optim.Adam(self._parameters, lr=settings.learning_rate)

    def act(self, s: FloatArray, mask: NDArray[np.bool_], rng: np.random.Generator) -> int:
        """One action drawn by the policy for one state. Raises ``ValueError`` on one without any allowed action."""
        if not mask.any():
            raise ValueError("mask: a state without any allowed action cannot be acted in")
        state = torch.from_numpy(s)[None], torch.from_numpy(mask)[None]
        with torch.no_grad():
            chance = masked(self.actor(*state), state[1])[0].exp().numpy()
        return int(rng.choice(len(chance), p=chance.astype(np.float64) / float(chance.sum(dtype=np.float64))))

    def update(self, rolled: Mapping[str, NDArray[Any]], rng: np.random.Generator) -> UpdateStats:
        """Learn from one roll-out: the fields of a DQN transition with masks, and ``last``. ``TrainingDiverged``."""
        s = self.settings
        t = {name: torch.from_numpy(array) for name, array in rolled.items()}

        def judge(at: Tensor) -> Evaluated:
            states, masks = t["s_tm1"][at], t["mask_tm1"][at]
            log_all = masked(self.actor(states, masks), masks)
            return Evaluated(self._done(log_all, t["a_tm1"][at]), entropy_of(log_all), self.critic(states, masks))

        with torch.no_grad():
            log_p = self._done(masked(self.actor(t["s_tm1"], t["mask_tm1"]), t["mask_tm1"]), t["a_tm1"])
            value_tm1, value_t = self.critic(t["s_tm1"], t["mask_tm1"]), self.critic(t["s_t"], t["mask_t"])
        values = value_tm1.numpy(), value_t.numpy()
        gain = advantages(rolled["r_t"], rolled["discount_t"], *values, rolled["last"], trace=s.trace)
        wanted = torch.from_numpy(gain) + value_tm1
        better = torch.from_numpy((gain - gain.mean()) / (gain.std() + 1e-8))
        step = lambda loss: descend(loss, self._optimiser, [self._parameters], s.gradient_norm, "ppo")  # noqa: E731
        found = learn(judge, log_p, better, wanted, s, step, rng, batch=s.batch_size)
        return UpdateStats(found[-1].loss, float(wanted.mean()), found[-1].gradient_norm)

    def get_state(self) -> dict[str, Any]:
        """Both networks and the optimiser."""
        return {
            "actor": self.actor.state_dict(),
            "critic": self.critic.state_dict(),
            "optimiser": self._optimiser.state_dict(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from ``get_state``'s answer."""
        self.actor.load_state_dict(state["actor"])
        self.critic.load_state_dict(state["critic"])
        self._optimiser.load_state_dict(state["optimiser"])
