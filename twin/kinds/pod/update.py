"""What may change in a pod: spec updates, gated tightening, status, ephemeral containers.

Source: ``pkg/apis/core/validation/validation.go`` (ValidatePodUpdate, ValidatePodStatusUpdate,
ValidatePodEphemeralContainersUpdate) and ``pkg/registry/core/pod/strategy.go``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Set
from typing import Any

from twin.kinds.pod.claim_statuses import check_claim_statuses
from twin.kinds.pod.scheduling_rules import NODE_AFFINITY_TERMS, check_tolerations
from twin.kinds.pod.validation import check_pod_only
from twin.kinds.rules.names import check, dns_subdomain, qualified_name, range_message
from twin.registry.status import FieldError, forbidden_field, invalid, required

Json = dict[str, Any]

_MAX_INT32 = 2**31 - 1
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
MIRROR = "kubernetes.io/config.mirror"
_SYSTEM_CONDITIONS = ("PodScheduled", "Ready", "Initialized")
_SPEC_TEXT = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_TOLERATION_TEXT = "existing toleration can not be modified except its tolerationSeconds"
_SELECTOR_TEXT = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"


def check_pod_update(obj: Json, old: Json) -> list[FieldError]:
    """ValidatePodUpdate, without the metadata."""
    spec, before = obj["spec"], old["spec"]
    if spec == before:
        return []
    found = check_pod_only(obj)
    for kind in ("containers", "initContainers"):
        stop, errors = _check_images(spec, before, kind)
        found += errors
        if stop:
            return found
    deadline, previous = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    if deadline is not None:
        if not 0 <= deadline <= _MAX_INT32:
            return [*found, invalid("spec.activeDeadlineSeconds", deadline, range_message(0, _MAX_INT32))]
        if previous is not None and previous < deadline:
            text = "must be less than or equal to previous value"
            return [*found, invalid("spec.activeDeadlineSeconds", deadline, text)]
    elif previous is not None:
        text = "must not update from a positive integer to nil value"
        found.append(invalid("spec.activeDeadlineSeconds", None, text))
    found += _check_tolerations_only_added(spec, before)
    found += _check_gates_only_removed(spec, before)
    munged = _munged(spec, before)
    if before.get("schedulingGates"):
        found += _check_tightening(spec, before, munged)
    if munged != before:
        found.append(forbidden_field("spec", _SPEC_TEXT))
    return found


def _check_images(spec: Json, before: Json, kind: str) -> tuple[bool, list[FieldError]]:
    """ValidateContainerUpdates: (whether to stop, errors)."""
    new, field = spec.get(kind) or [], f"spec.{kind}"
    if len(new) != len(before.get(kind) or []):
        return True, [forbidden_field(field, "pod updates may not add or remove containers")]
    found = []
    for index, one in enumerate(new):
        image = one.get("image", "")
        if not image:
            found.append(required(f"{field}[{index}].image"))
        if image != image.strip():
            found.append(invalid(f"{field}[{index}].image", image, "must not have leading or trailing whitespace"))
    return False, found


def _check_gates_only_removed(spec: Json, before: Json) -> list[FieldError]:
    kept = {gate["name"] for gate in before.get("schedulingGates") or ()}
    return [
        forbidden_field(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate['name']}'",
        )
        for index, gate in enumerate(spec.get("schedulingGates") or ())
        if gate["name"] not in kept
    ]


def _munged(spec: Json, before: Json) -> Json:
    """The new spec with every field that may change put back."""
    munged = dict(spec)
    for kind in ("containers", "initContainers"):
        if spec.get(kind):
            munged[kind] = [
                {**one, "image": previous.get("image", "")}
                for one, previous in zip(spec[kind], before[kind], strict=True)
            ]
    for name in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        munged.pop(name, None)
        if name in before:
            munged[name] = before[name]
    if before["terminationGracePeriodSeconds"] < 0 and spec["terminationGracePeriodSeconds"] == 1:
        munged["terminationGracePeriodSeconds"] = before["terminationGracePeriodSeconds"]
    return munged


def _check_tolerations_only_added(spec: Json, before: Json) -> list[FieldError]:
    def key(one: Json) -> list[tuple[str, Any]]:
        return sorted((name, value) for name, value in one.items() if name != "tolerationSeconds")

    new = [key(one) for one in spec.get("tolerations") or ()]
    for one in before.get("tolerations") or ():
        if key(one) not in new:
            return [forbidden_field("spec.tolerations", _TOLERATION_TEXT)]
    return check_tolerations(spec.get("tolerations"), "spec.tolerations")


def _check_tightening(spec: Json, before: Json, munged: Json) -> list[FieldError]:
    """A gated pod's node selector and required node affinity may become narrower, never wider."""
    found: list[FieldError] = []
    new, old = spec.get("nodeSelector") or {}, before.get("nodeSelector") or {}
    if new != old:
        if any(new.get(key) != value for key, value in old.items()):
            found.append(invalid("spec.nodeSelector", new, _SELECTOR_TEXT))
        _put(munged, "nodeSelector", before)
    new_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    old_affinity = (before.get("affinity") or {}).get("nodeAffinity") or {}
    if new_affinity != old_affinity:
        found += _check_affinity_tightening(new_affinity, old_affinity)
        affinity = {key: value for key, value in (spec.get("affinity") or {}).items() if key != "nodeAffinity"}
        if old_affinity:
            affinity["nodeAffinity"] = old_affinity
        munged["affinity"] = affinity
        if not affinity and "affinity" not in before:
            del munged["affinity"]
    return found


def _put(munged: Json, name: str, before: Json) -> None:
    munged.pop(name, None)
    if name in before:
        munged[name] = before[name]


def _check_affinity_tightening(new: Json, old: Json) -> list[FieldError]:
    old_terms = (old.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []
    if not old_terms:
        return []
    new_terms = (new.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []
    if len(new_terms) != len(old_terms):
        text = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        return [invalid(NODE_AFFINITY_TERMS, new_terms, text)]
    return [
        invalid(f"{NODE_AFFINITY_TERMS}[{index}]", term, "only additions are allowed (no mutations or deletions)")
        for index, (term, previous) in enumerate(zip(new_terms, old_terms, strict=True))
        if not _extends(term, previous)
    ]


def _extends(term: Json, previous: Json) -> bool:
    """An empty term matches nothing, so adding to it would widen."""
    if not previous.get("matchExpressions") and not previous.get("matchFields"):
        return term == previous
    return all(
        (term.get(part) or [])[: len(previous.get(part) or [])] == (previous.get(part) or [])
        for part in ("matchExpressions", "matchFields")
    )


def check_pod_status_update(obj: Json, old: Json) -> list[FieldError]:
    """ValidatePodStatusUpdate; conditions are reported under ``metadata`` there, so they are here."""
    status, before, spec = obj["status"], old["status"], old["spec"]
    found: list[FieldError] = []
    for index, condition in enumerate(status.get("conditions") or ()):
        if condition["type"] not in _SYSTEM_CONDITIONS:
            found += check(f"metadata.conditions[{index}].Type", condition["type"], qualified_name)
    nominated = status.get("nominatedNodeName")
    if nominated and nominated != before.get("nominatedNodeName"):
        if spec.get("nodeName"):
            text = "may not be set on pods that are already bound to a node"
            found.append(forbidden_field("status.nominatedNodeName", text))
        else:
            found += check("status.nominatedNodeName", nominated, dns_subdomain)
    if status.get("qosClass") != before.get("qosClass"):
        found.append(invalid("status.qosClass", status.get("qosClass", ""), "field is immutable"))
    policy = spec.get("restartPolicy", "")
    sidecars = {one["name"] for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"}
    found += _check_state_transition(status, before, "containerStatuses", policy, frozenset())
    found += _check_state_transition(status, before, "initContainerStatuses", policy, sidecars)
    found += _check_state_transition(status, before, "ephemeralContainerStatuses", "Never", frozenset())
    found += check_claim_statuses(status, spec)
    found += _check_ips(status.get("podIPs") or [], "status.podIPs")
    hosts = status.get("hostIPs") or []
    if hosts and hosts[0].get("ip") != status.get("hostIP"):
        found.append(invalid("status.hostIPs[0].ip", hosts[0].get("ip", ""), "must be equal to `hostIP`"))
    return found + _check_ips(hosts, "status.hostIPs")


def _check_ips(entries: list[Json], field: str) -> list[FieldError]:
    found: list[FieldError] = []
    families = []
    for index, entry in enumerate(entries):
        try:
            families.append(ipaddress.ip_address(entry.get("ip", "")).version)
        except ValueError:
            text = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
            found.append(invalid(f"{field}[{index}]", entry.get("ip", ""), text))
    if len(families) != len(set(families)):
        found.append(invalid(field, entries, "may specify no more than one IP for each IP family"))
    return found


def _check_state_transition(
    status: Json, before: Json, kind: str, policy: str, may_restart: Set[str]
) -> list[FieldError]:
    """A container that ended for good does not run again."""
    if policy == "Always":
        return []
    found: list[FieldError] = []
    now = {one["name"]: one for one in status.get(kind) or ()}
    for index, one in enumerate(before.get(kind) or ()):
        ended = (one.get("state") or {}).get("terminated")
        if ended is None or (ended.get("exitCode") and policy == "OnFailure") or one["name"] in may_restart:
            continue
        current = now.get(one["name"])
        if current is not None and (current.get("state") or {}).get("terminated") is None:
            text = "may not be transitioned to non-terminated state"
            found.append(forbidden_field(f"status.{kind}[{index}].state", text))
    return found


def check_ephemeral_update(obj: Json, old: Json) -> list[FieldError]:
    """ValidatePodEphemeralContainersUpdate: containers are added, never changed or removed."""
    found = check_pod_only(obj)
    if MIRROR in (old["metadata"].get("annotations") or ()):
        return [forbidden_field("[]", "static pods do not support ephemeral containers")]
    new = {one["name"]: one for one in obj["spec"].get("ephemeralContainers") or ()}
    for one in old["spec"].get("ephemeralContainers") or ():
        name = one["name"]
        if name not in new:
            text = f'existing ephemeral containers "{name}" may not be removed\n'
            found.append(forbidden_field("spec.ephemeralContainers", text))
        elif new[name] != one:
            text = f'existing ephemeral containers "{name}" may not be changed\n'
            found.append(forbidden_field("spec.ephemeralContainers", text))
    return found
