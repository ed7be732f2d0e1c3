"""May this decision be written at all? One reason each, a stable word and a line for people. Pure.

Asked twice: when a decision is made, and again right before it is written, since an operator may have paused meanwhile.
"""

from __future__ import annotations

from msgspec import Struct

from services.autoscaler.core.cluster import ScaledCluster
from services.autoscaler.core.events import HpaFact
from services.autoscaler.core.state import ScalerState
from services.autoscaler.core.watched import WatchedScaler
from shared.autoscaling.approval import digest_of, refusal, weights_of
from shared.autoscaling.safety import foreign
from shared.decide.canary import first_of
from shared.model.controllers.autoscaler import Autoscaler, ScalerMode, ScalingTarget


class Gate(Struct, frozen=True):
    """Why nothing is written. ``reason`` "": it may be."""

    reason: str = ""
    text: str = ""


OPEN = Gate()


def digest(watched: WatchedScaler) -> str:
    """What a go must name. Of a policy that cannot be had the weights of before count: only HPA's rule can act then."""
    return digest_of(watched.scaler.document, weights(watched))


def weights(watched: WatchedScaler) -> str:
    """Digest of the named policy's weights, or of those that it had last."""
    return weights_of(watched.policy) if watched.policy is not None else watched.weights


def of_object(watched: WatchedScaler) -> Gate:
    """Why nothing of the object is written."""
    scaler = watched.scaler
    if scaler.problems:
        return Gate("Invalid", "; ".join(scaler.problems))
    if not scaler.mode.acts:
        return Gate(
            "Observing" if scaler.mode is ScalerMode.OBSERVE else "Recommending", f"spec.mode is {scaler.mode.value}"
        )
    if scaler.paused:
        return Gate("Paused", "spec.paused is true: conclave autoscale resume")
    why = refusal(scaler, digest(watched))
    return Gate("NotApproved", why) if why else OPEN


def of_service(
    watched: WatchedScaler,
    target: ScalingTarget,
    state: ScalerState,
    hpa: HpaFact | str | None,
    *,
    allowed: int,
    wall_s: float,
) -> Gate:
    """Why one service of an object that may act is not written. ``hpa``: as read in this round, in the mode that sets
    bounds; ``allowed``: what would be written."""
    scaler, cluster = watched.scaler, state.cluster
    # one that looks on, is paused or has no go writes nothing, so it is in nobody's way
    others = sorted(
        key
        for key in state.claims.get(claim(scaler, target), ())
        if key != scaler.key and not of_object(state.objects[key]).reason
    )
    if others:
        return Gate("SharedTarget", f"{target.ref} is scaled by {others[0]} too: name it in one of them")
    names = (one.name for one in scaler.targets)
    if target.name not in first_of(names, scaler.uid or scaler.key, scaler.canary_services):
        return Gate("Canary", f"not in the {scaler.canary_services} % of the services that are acted upon")
    found = watched.foreign.get(target.name)
    if found is not None and found.holds(allowed, wall_s):
        return Gate("ForeignWriter", f"{target.ref}: {foreign_text(scaler, target, found, wall_s)}")
    there = cluster.hpas_of(scaler.namespace, target.ref)
    if scaler.mode is ScalerMode.ACT_ON_SCALE and there:
        who = f" of KEDA's {there[0].owner}" if there[0].owner.startswith("ScaledObject/") else ""
        return Gate(
            "ForeignWriter",
            f"{target.ref} is scaled by the HPA {there[0].name}{who}: take it away, or set mode act-on-hpa-bounds",
        )
    if scaler.mode is ScalerMode.ACT_ON_BOUNDS:
        return _of_bounds(target, hpa)
    return OPEN


def foreign_text(scaler: Autoscaler, target: ScalingTarget, found: foreign.Foreign, wall_s: float) -> str:
    """What is told of what somebody else wrote."""
    off = scaler.mode is ScalerMode.ACT_ON_SCALE and found.value == 0 and target.minimum > 0
    return foreign.text(found, scaler.foreign_writer, wall_s, off=off)


def _of_bounds(target: ScalingTarget, hpa: HpaFact | str | None) -> Gate:
    if not isinstance(hpa, HpaFact):
        return Gate("NoHPA", f"{target.ref}: {(hpa or 'no HPA scales it').lstrip('!')}; make one, or name it in hpa")
    if hpa.owner:
        return Gate(
            "ForeignWriter", f"the HPA {hpa.name} belongs to {hpa.owner}, which sets its bounds: set them there"
        )
    if (hpa.ref.kind, hpa.ref.name) != (target.ref.kind, target.ref.name):
        return Gate("NoHPA", f"the HPA {hpa.name} scales {hpa.ref}, not {target.ref}: correct hpa")
    return OPEN


def claim(scaler: Autoscaler, target: ScalingTarget) -> str:
    """What two objects must not both name."""
    group = target.ref.api_version.partition("/")[0]
    return f"{scaler.namespace}/{group}/{target.ref}"


def hpas_to_read(scaler: Autoscaler, cluster: ScaledCluster) -> dict[str, str]:
    """By service, the HPA whose bounds are set: the one that is named, else the only one there is."""
    if scaler.mode is not ScalerMode.ACT_ON_BOUNDS:
        return {}
    found = {}
    for target in scaler.targets:
        there = cluster.hpas_of(scaler.namespace, target.ref)
        if target.hpa:
            found[target.name] = target.hpa
        elif len(there) == 1:
            found[target.name] = there[0].name
    return found
