"""``karma``: a learned policy for service graphs: one small network, shared by all services, under roles.

At each decision every service takes one step of ``features.STEPS``: the best of those that its role and its bounds
leave (``roles/organisation.py``). The network sees what the signals say of it and of its graph, and what the rule by
demand would do (feature ``gap``), which it learned to follow first and to depart from later (docs/autoscaling-twin.md).
numpy only; the weights are a file of ``shared.policy.weights``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from msgspec import UNSET, Struct
from numpy.typing import NDArray

from shared.autoscaling.networks.demand import DemandPolicy
from shared.autoscaling.networks.features import FEATURES, STEPS, Floats, features, inputs_of
from shared.autoscaling.networks.signals import Reader, Signals
from shared.autoscaling.observation import Decision, Observation
from shared.autoscaling.roles.organisation import NO_ROLE, Organisation, Role, graph_values, organisation_of
from shared.errors import ConfigError
from shared.policy.networks import layer_count, mlp, mlp_fault
from shared.policy.weights import WeightsFile, decode

NAME = "karma"
DATA = Path(__file__).with_name("karma.npz")


class Eyes:
    """What the policy and its trainer make of an observation, alike: signals, the rule's wishes, roles, inputs."""

    def __init__(self, organisation: Organisation) -> None:
        self.organisation = organisation
        self._reader, self._rule = Reader(), DemandPolicy()
        self.last: dict[str, int] = {}
        """The step that each service took last."""
        self.inputs: NDArray[np.float64] = np.zeros((0, len(FEATURES)))
        """[services, features] of the last look, not bounded."""
        self.signals: dict[str, Signals] = {}
        self.targets: dict[str, int] = {}
        self.roles: dict[str, Role | None] = {}
        self.graph: dict[str, float] = {}

    def reset(self) -> None:
        """Forget everything."""
        self._reader.reset()
        self._rule.reset(0)
        self.last = {}
        self.signals, self.inputs = {}, np.zeros((0, len(FEATURES)))

    @property
    def tight(self) -> bool:
        """Whether the rule takes it that there is no more room."""
        return self._rule.tight

    def look(self, seen: Observation) -> tuple[Floats, NDArray[np.bool_]]:
        """(features float32 [services, features], mask bool [services, steps]), in the order of ``signals``."""
        self.signals = self._reader.read(seen)
        self.targets = self._rule.wanted(self.signals, seen.now)
        self.graph = graph_values(self.signals)
        self.roles = {name: self.organisation.role(one, self.graph) for name, one in self.signals.items()}
        self.inputs = inputs_of(self.signals, self.targets, self.last, tight=self.tight)
        masks = [self.organisation.mask(one, self.roles[name]) for name, one in self.signals.items()]
        return features(self.inputs), np.array(masks)

    def step(self, chosen: NDArray[np.int64]) -> dict[str, int]:
        """Replicas, by service, for the index of the step that each takes."""
        self.last = {name: STEPS[int(at)] for name, at in zip(self.signals, chosen, strict=True)}
        return {name: self.signals[name].replicas + step for name, step in self.last.items()}


class KarmaSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be chosen without training anew."""

    binding: Literal["hard", "soft", "none"] = "hard"
    """Whether the shipped roles mask steps; the weights that are shipped were trained with ``hard``."""


class KarmaPolicy:
    """See the module. ``weights`` None: those that are shipped. ``organisation`` None: the shipped roles."""

    name = NAME
    Settings = KarmaSettings
    LEARNED = True

    def __init__(
        self,
        settings: KarmaSettings = KarmaSettings(),  # noqa: B008 - frozen
        *,
        weights: WeightsFile | None = None,
        organisation: Organisation | None = None,
    ) -> None:
        self.weights = weights or shipped_weights()
        self._params = self.weights.arrays
        self._layers = layer_count(self._params)
        fault = mlp_fault(self._params) or _misfit(self.weights)
        if fault:
            raise ConfigError(f"weights of {NAME}: {fault}; train again")
        self.eyes = Eyes(organisation or organisation_of(settings.binding))

    def reset(self, seed: int) -> None:  # noqa: ARG002
        """Forget everything; it draws nothing."""
        self.eyes.reset()

    def decide(self, seen: Observation) -> Decision:
        """What it wants now; a service without readings keeps what it has, unless the rule wants more."""
        rows, masks = self.eyes.look(seen)
        wanted = self.eyes.step(self.chosen(rows, masks))
        for name, one in self.eyes.signals.items():
            if one.missing:
                wanted[name] = max(one.replicas, wanted[name])
        return wanted

    def chosen(self, rows: Floats, masks: NDArray[np.bool_]) -> NDArray[np.int64]:
        """int [services]: the index of the best step of those that the masks (bool [services, steps]) leave."""
        logits = np.where(masks, mlp(self._params, rows, self._layers), -np.inf)
        found: NDArray[np.int64] = logits.argmax(axis=1)
        return found

    @property
    def envelope(self) -> Mapping[str, tuple[float, float]] | None:
        """The range of each input in training; None: its card does not say."""
        found = self.weights.card.envelope
        return None if found is UNSET else found

    @property
    def inputs(self) -> dict[str, dict[str, float]]:
        """By service and feature: what it saw in its last decision, not bounded."""
        rows = self.eyes.inputs.tolist()
        return {name: dict(zip(FEATURES, row, strict=True)) for name, row in zip(self.eyes.signals, rows, strict=True)}

    @property
    def roles(self) -> dict[str, str]:
        """Which role each service acted in at the last decision."""
        return {name: role.name if role is not None else NO_ROLE for name, role in self.eyes.roles.items()}


@lru_cache(maxsize=1)
def shipped_weights() -> WeightsFile:
    """The weights that come with the package. Raises ``ConfigError`` where there are none."""
    if not DATA.is_file():
        raise ConfigError(f"weights of {NAME}: none are shipped; train them with conclave train {NAME}")
    return decode(DATA.read_bytes(), policy=NAME)


def _misfit(weights: WeightsFile) -> str:
    first, last = weights.arrays["l0.w"], weights.arrays[f"l{layer_count(weights.arrays) - 1}.w"]
    if first.shape[0] != len(FEATURES) or last.shape[-1] != len(STEPS):
        return f"{first.shape[0]} inputs and {last.shape[-1]} steps are not {len(FEATURES)} and {len(STEPS)}"
    if list(weights.card.features) != list(FEATURES):
        return "its inputs are not those of this version"
    return ""
