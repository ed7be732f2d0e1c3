"""``aware``: a meta-learned agent per service, in AWARE's manner; a baseline, own code. numpy only.

After Qiu et al., "AWARE: automate workload autoscaling with reinforcement learning in production cloud systems" (USENIX
ATC 2023): a recurrent network reads the trajectory so far (what was seen, what was done, what it earned) and gives an
embedding of the workload; the agent decides on what it sees and on that embedding, so that it adapts to a workload
without a gradient. It was trained on many graphs, not on one, and begins with the decisions of a rule that was there
(``hpa``), which the paper calls bootstrapping. What differs: replicas alone, no cpu and memory limits; the policy
gradient is that of ``karma``; so is the reward of training, so that nobody is compared by another's goal.

What an action earned is told to the network as the paper has it: half the share of the latency objective that is kept,
half the use of cpu. The network is torch's GRU cell (Cho et al. 2014), ``n = tanh(W_n x + b_n + r (U_n h + c_n))``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shared.autoscaling.networks.features import HOLD, STEPS, Floats
from shared.autoscaling.networks.raw import READINGS, RawEyes, held, number, used
from shared.autoscaling.observation import LOAD, Decision, ScalingObservation
from shared.errors import ConfigError
from shared.policy.networks import layer_count, mlp
from shared.policy.weights import WeightsFile, shipped_beside

NAME = "aware"
MEMORY = 24
"""Numbers of an embedding."""
TOLD = (*READINGS, "step", "earned")
"""What the recurrent network reads: the readings, the step before and what it earned."""
Params = Mapping[str, NDArray[np.float32]]


def gru(params: Params, x: Floats, h: Floats) -> Floats:
    """The next embedding [services, memory] for ``x`` [services, told] and the last one ``h``."""
    size = h.shape[1]
    ahead = x @ params["gru.wi"] + params["gru.bi"]
    back = h @ params["gru.wh"] + params["gru.bh"]
    reset = _sigmoid(ahead[:, :size] + back[:, :size])
    update = _sigmoid(ahead[:, size : 2 * size] + back[:, size : 2 * size])
    new = np.tanh(ahead[:, 2 * size :] + reset * back[:, 2 * size :])
    found: Floats = ((1 - update) * new + update * h).astype(np.float32)
    return found


class MetaEyes:
    """What an agent is told at a decision; the policy and its trainer use it alike."""

    def __init__(self) -> None:
        self._raw = RawEyes()
        self._last: dict[str, int] = {}

    def reset(self) -> None:
        """Forget everything."""
        self._raw.reset()
        self._last.clear()

    def look(self, seen: ScalingObservation) -> tuple[Floats, NDArray[np.bool_]]:
        """(float32 [services, ``TOLD``], steps within the bounds bool [services, steps])."""
        rows, masks = self._raw.look(seen)
        more = [(STEPS[self._last.get(name, HOLD)] / 2.0, earned(seen, name)) for name in seen.services]
        return np.concatenate((rows, np.array(more, np.float32)), axis=1), masks

    def step(self, chosen: NDArray[np.int64]) -> dict[str, int]:
        """Replicas, by service, for the index of the step that each takes."""
        self._last = dict(zip(self._raw.replicas, chosen.tolist(), strict=True))
        return self._raw.wanted(chosen)


def earned(seen: ScalingObservation, name: str) -> float:
    """What the state of a service is worth by itself, 0 to 1."""
    one, objective_s = seen.services[name], seen.latency_objective_s
    latency_s = number(one.latency_s)
    kept = min(objective_s / latency_s, 1.0) if objective_s and latency_s > 0 else 1.0
    return 0.5 * kept + 0.5 * min(used(one, "cpu"), 1.0)


class AwareSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing can be chosen without training anew."""


class AwarePolicy:
    """See the module. ``weights`` None: those that are shipped."""

    name = NAME
    Settings = AwareSettings
    LEARNED = True

    def __init__(
        self,
        settings: AwareSettings = AwareSettings(),  # noqa: ARG002, B008 - frozen
        *,
        weights: WeightsFile | None = None,
    ) -> None:
        self.weights = weights or shipped_beside(__file__, NAME)
        self._params = self.weights.arrays
        fault = _misfit(self._params)
        if fault:
            raise ConfigError(f"weights of {NAME}: {fault}; train again")
        self._layers = layer_count(self._params)
        self._eyes = MetaEyes()
        self._memory: Floats = np.zeros((0, MEMORY), np.float32)

    def reset(self, seed: int) -> None:  # noqa: ARG002
        """Forget everything, the embedding too; it draws nothing."""
        self._eyes.reset()
        self._memory = np.zeros((0, MEMORY), np.float32)

    def needs(self, service: str) -> frozenset[str]:  # noqa: ARG002 - the protocol's
        """Without these it knows neither the load nor what a replica can answer."""
        return LOAD

    def decide(self, seen: ScalingObservation) -> Decision:
        """Each service's best step; a service without readings loses nothing."""
        rows, masks = self._eyes.look(seen)
        if len(self._memory) != len(rows):
            self._memory = np.zeros((len(rows), MEMORY), np.float32)
        self._memory = gru(self._params, rows, self._memory)
        logits = mlp(self._params, np.concatenate((rows, self._memory), axis=1), self._layers)
        return held(self._eyes.step(np.where(masks, logits, -np.inf).argmax(axis=1)), seen)


def shapes(hidden: int) -> dict[str, tuple[int, ...]]:
    """The arrays of the policy, with so many hidden numbers in the agent's layer."""
    return {
        "gru.wi": (len(TOLD), 3 * MEMORY),
        "gru.wh": (MEMORY, 3 * MEMORY),
        "gru.bi": (3 * MEMORY,),
        "gru.bh": (3 * MEMORY,),
        "l0.w": (len(TOLD) + MEMORY, hidden),
        "l0.b": (hidden,),
        "l1.w": (hidden, len(STEPS)),
        "l1.b": (len(STEPS),),
    }


def _misfit(params: Params) -> str:
    hidden = params["l0.b"].shape[0] if "l0.b" in params and params["l0.b"].ndim else 0
    wanted = shapes(hidden)
    for name in sorted({*wanted, *params}):
        found = tuple(params[name].shape) if name in params else None
        if found != wanted.get(name):
            return f"array {name!r} is {found or 'missing'}, this version needs {wanted.get(name, 'none')}"
    return ""


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(x, -60.0, 60.0))), np.float32)
