"""``karma``: a learned policy for service graphs: one small network, shared by all services, under roles.

At each decision every service takes one step of ``features.STEPS``: the best of those that its role and its bounds
leave (``roles/organisation.py``). The network sees what the signals say of it and of its graph, and what the rule by
demand would do (feature ``gap``), which it learned to follow first and to depart from later (docs/autoscaling-twin.md).
``karma-single`` is what one compares it with: one agent for the whole graph, which changes one service at a decision.
numpy only; the weights are a file of ``shared.policy.weights``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from msgspec import UNSET, Struct
from numpy.typing import NDArray

from shared.autoscaling.networks.agents import KarmaAgents, check_size
from shared.autoscaling.networks.demand import DemandPolicy
from shared.autoscaling.networks.features import FEATURES, STEPS, Floats, features, inputs_of
from shared.autoscaling.networks.signals import ServiceSignals, SignalReader
from shared.autoscaling.observation import LOAD, Decision, ScalingObservation
from shared.autoscaling.roles.checking import readings_of
from shared.autoscaling.roles.organisation import NO_ROLE, Organisation, ScalingRole, graph_values, values_of
from shared.autoscaling.roles.reading import organisation_from, organisation_of
from shared.errors import ConfigError
from shared.policy.networks import layer_count, mlp, mlp_fault
from shared.policy.weights import WeightsFile, shipped_beside

NAME, SINGLE = "karma", "karma-single"
NAMES = {KarmaAgents.MULTI: NAME, KarmaAgents.SINGLE: SINGLE}


class Eyes:
    """What the policy and its trainer make of an observation, alike: signals, the rule's wishes, roles, inputs."""

    def __init__(self, organisation: Organisation) -> None:
        self.organisation = organisation
        self._reader, self._rule = SignalReader(), DemandPolicy()
        self.last: dict[str, int] = {}
        """The step that each service took last."""
        self.inputs: NDArray[np.float64] = np.zeros((0, len(FEATURES)))
        """[services, features] of the last look, not bounded."""
        self.signals: dict[str, ServiceSignals] = {}
        self.targets: dict[str, int] = {}
        self.roles: dict[str, ScalingRole | None] = {}
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

    def look(self, seen: ScalingObservation) -> tuple[Floats, NDArray[np.bool_]]:
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

    binding: Literal["hard", "soft", "none"] | None = None
    """Whether the shipped roles mask steps; None: as the weights were trained. Those that are shipped: ``hard``."""


class KarmaPolicy:
    """See the module. ``weights`` None: those that are shipped. ``organisation`` None: the shipped roles."""

    name = NAME
    agents = KarmaAgents.MULTI
    Settings = KarmaSettings
    LEARNED = True

    def __init__(
        self,
        settings: KarmaSettings = KarmaSettings(),  # noqa: B008 - frozen
        *,
        weights: WeightsFile | None = None,
        organisation: Organisation | None = None,
    ) -> None:
        self.weights = weights or shipped_beside(__file__, self.name)
        self._params = self.weights.arrays
        self._layers = layer_count(self._params)
        fault = mlp_fault(self._params) or _misfit(self.weights, self.agents)
        if fault:
            raise ConfigError(f"weights of {self.name}: {fault}; train again")
        self.services = self.agents.services(self._params["l0.w"].shape[0], len(FEATURES))
        """For how many services the weights are; 0: any number."""
        own = trained_roles(self.weights)
        self.eyes = Eyes(organisation or organisation_of(settings.binding or trained_binding(self.weights), roles=own))
        self._needs = LOAD | (readings_of(own) if own is not None else frozenset())

    def reset(self, seed: int) -> None:  # noqa: ARG002
        """Forget everything; it draws nothing."""
        self.eyes.reset()

    def needs(self, service: str) -> frozenset[str]:  # noqa: ARG002 - the protocol's
        """Without these it knows neither the load nor what a replica can answer; roles of a user's own need what their
        signals are made of."""
        return self._needs

    def decide(self, seen: ScalingObservation) -> Decision:
        """What it wants now; a service without readings keeps what it has, unless the rule wants more."""
        check_size(self.name, self.services, len(seen.services))
        rows, masks = self.eyes.look(seen)
        wanted = self.eyes.step(self.chosen(rows, masks))
        for name, one in self.eyes.signals.items():
            if one.missing:
                wanted[name] = max(one.replicas, wanted[name])
        return wanted

    def chosen(self, rows: Floats, masks: NDArray[np.bool_]) -> NDArray[np.int64]:
        """int [services]: the index of the best step of those that the masks (bool [services, steps]) leave."""
        logits = mlp(self._params, self.agents.joined(rows), self._layers)
        logits = np.where(self.agents.joined(masks), logits, -np.inf)
        return self.agents.steps(logits.argmax(axis=1), len(rows))

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

    @property
    def reasons(self) -> dict[str, str]:
        """Why each service was in its role then: the conditions that held; a service without a role is not there."""
        return {
            name: role.when.told({**values_of(self.eyes.signals[name]), **self.eyes.graph})
            for name, role in self.eyes.roles.items()
            if role is not None
        }


class SinglePolicy(KarmaPolicy):
    """One agent for the graph; for exactly the number of services that it was trained on."""

    name = SINGLE
    agents = KarmaAgents.SINGLE


def trained_binding(weights: WeightsFile) -> str:
    """How roles bound while the weights were trained, as their card says; hard where it says nothing."""
    return str(weights.card.trained.get("settings", {}).get("binding", "hard"))


def trained_roles(weights: WeightsFile) -> Organisation | None:
    """The user's own roles that the weights were trained under, as their card has them; None: the shipped ones.

    ``ConfigError``: they are none, or contradict.
    """
    found = weights.card.trained.get("settings", {}).get("organisation")
    return None if found is None else organisation_from(found, "weights of karma: trained.settings.organisation")


def _misfit(weights: WeightsFile, agents: KarmaAgents) -> str:
    first, last = weights.arrays["l0.w"], weights.arrays[f"l{layer_count(weights.arrays) - 1}.w"]
    services = max(agents.services(first.shape[0], len(FEATURES)), 1)
    if first.shape[0] != services * len(FEATURES) or last.shape[-1] != services * len(STEPS):
        return f"{first.shape[0]} inputs and {last.shape[-1]} steps are not {len(FEATURES)} and {len(STEPS)} a service"
    if list(weights.card.features) != list(FEATURES):
        return "its inputs are not those of this version"
    return ""
