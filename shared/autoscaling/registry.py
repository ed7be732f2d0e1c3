"""Autoscaling policies by name. A policy is a class that takes its ``Settings`` (a msgspec struct with defaults)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from shared.autoscaling.observation import Policy
from shared.decide.registry import PolicyEntry, PolicyRegistry
from shared.errors import ConfigError, ObjectError
from shared.policy.weights import WeightsFile

POLICIES = PolicyRegistry(
    "autoscaling",
    {
        "aware": PolicyEntry("shared.autoscaling.networks.aware:AwarePolicy"),
        "demand": PolicyEntry("shared.autoscaling.networks.demand:DemandPolicy"),
        "dqn": PolicyEntry("shared.autoscaling.networks.dqn:DqnPolicy"),
        "hpa": PolicyEntry("shared.autoscaling.policies.hpa:HpaPolicy"),
        "karma": PolicyEntry("shared.autoscaling.networks.karma:KarmaPolicy"),
        "karma-single": PolicyEntry("shared.autoscaling.networks.karma:SinglePolicy"),
        "keda": PolicyEntry("shared.autoscaling.policies.keda:KedaPolicy"),
        "predictive": PolicyEntry("shared.autoscaling.policies.predictive:PredictivePolicy"),
    },
)


def make_policy(name: str, settings: Mapping[str, Any] | None = None, *, weights: WeightsFile | None = None) -> Policy:
    """A new policy of that name; ``weights`` of a learned one in place of those that are shipped.

    Raises ``ConfigError`` for a name or a setting that is not known, or out of range, and for weights that do not fit.
    """
    maker = POLICIES.entry(name).maker()
    try:
        found = msgspec.convert(dict(settings or {}), maker.Settings)
        for field in maker.Settings.__struct_fields__:
            value = getattr(found, field)
            if isinstance(value, float) and not math.isfinite(value):
                raise ObjectError(f"{value} is no number to go by", field=field)
        if weights is not None and not getattr(maker, "LEARNED", False):
            raise ObjectError("it has none; leave them out", field="weights")
        policy: Policy = maker(found) if weights is None else maker(found, weights=weights)
    except (msgspec.ValidationError, ObjectError) as error:
        known = ", ".join(maker.Settings.__struct_fields__)
        raise ConfigError(f"policy {name}: {error}; its settings are {known}") from error
    return policy
