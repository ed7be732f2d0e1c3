"""Validation of everything in a pod that only schedulers read: selectors, affinity, tolerations, spread, gates.

Source: ``pkg/apis/core/validation/validation.go`` (validateAffinity, ValidateTolerations,
validateTopologySpreadConstraints, validateSchedulingGates). It does not look at containers.
"""

from __future__ import annotations

from typing import Any

from twin.kinds.rules.names import (
    check,
    check_label_selector,
    check_requirement,
    dns_label,
    dns_subdomain,
    label_value,
    qualified_name,
)
from twin.registry.status import FieldError, duplicate, forbidden_field, invalid, not_supported, required

Json = dict[str, Any]

_WHEN_UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")
_SPREAD_TOPOLOGY_POLICIES = ("Honor", "Ignore")
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
NODE_AFFINITY_TERMS = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"


def check_tolerations(tolerations: list[Json] | None, field: str) -> list[FieldError]:
    """ValidateTolerations."""
    found: list[FieldError] = []
    for index, one in enumerate(tolerations or ()):
        here = f"{field}[{index}]"
        key, operator, value = one.get("key", ""), one.get("operator", ""), one.get("value", "")
        if key:
            found += check(f"{here}.key", key, qualified_name)
        if not key and operator != "Exists":
            found.append(
                invalid(
                    f"{here}.operator",
                    operator,
                    'operator must be Exists when `key` is empty, which means "match all values and all keys"',
                )
            )
        effect = one.get("effect", "")
        if one.get("tolerationSeconds") is not None and effect != "NoExecute":
            found.append(
                invalid(f"{here}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
            )
        if operator in ("", "Equal"):
            found += [invalid(f"{here}.operator", value, message) for message in label_value(value)]
        elif operator == "Exists":
            if value:
                found.append(invalid(f"{here}.operator", value, "value must be empty when `operator` is 'Exists'"))
        else:
            found.append(not_supported(f"{here}.operator", operator, ("Equal", "Exists")))
        if effect and effect not in TAINT_EFFECTS:
            found.append(not_supported(f"{here}.effect", effect, TAINT_EFFECTS))
    return found


def check_affinity(affinity: Json | None, field: str) -> list[FieldError]:
    """validateAffinity."""
    if not affinity:
        return []
    found: list[FieldError] = []
    if (node := affinity.get("nodeAffinity")) is not None:
        found += _check_node_affinity(node, f"{field}.nodeAffinity")
    for kind in ("podAffinity", "podAntiAffinity"):
        if (pods := affinity.get(kind)) is not None:
            found += _check_pod_affinity(pods, f"{field}.{kind}")
    return found


def _check_node_affinity(affinity: Json, field: str) -> list[FieldError]:
    found: list[FieldError] = []
    if (selector := affinity.get(_REQUIRED)) is not None:
        found += check_node_selector(selector, f"{field}.{_REQUIRED}")
    for index, one in enumerate(affinity.get(_PREFERRED) or ()):
        here = f"{field}.{_PREFERRED}[{index}]"
        found += _check_weight(one, here)
        found += check_node_selector_term(one.get("preference") or {}, f"{here}.preference")
    return found


def _check_weight(term: Json, field: str) -> list[FieldError]:
    weight = term.get("weight", 0)
    return [] if 1 <= weight <= 100 else [invalid(f"{field}.weight", weight, "must be in the range 1-100")]


def check_node_selector(selector: Json, field: str) -> list[FieldError]:
    """ValidateNodeSelector: at least one term."""
    terms = selector.get("nodeSelectorTerms") or []
    if not terms:
        return [required(f"{field}.nodeSelectorTerms", "must have at least one node selector term")]
    found: list[FieldError] = []
    for index, term in enumerate(terms):
        found += check_node_selector_term(term, f"{field}.nodeSelectorTerms[{index}]")
    return found


def check_node_selector_term(term: Json, field: str) -> list[FieldError]:
    """ValidateNodeSelectorTerm."""
    found: list[FieldError] = []
    for index, requirement in enumerate(term.get("matchExpressions") or ()):
        found += check_requirement(requirement, f"{field}.matchExpressions[{index}]", compares=True)
    for index, requirement in enumerate(term.get("matchFields") or ()):
        found += _check_node_field(requirement, f"{field}.matchFields[{index}]")
    return found


def _check_node_field(one: Json, field: str) -> list[FieldError]:
    found: list[FieldError] = []
    operator, values, key = one.get("operator", ""), one.get("values") or [], one.get("key", "")
    if operator in ("In", "NotIn"):
        if len(values) != 1:
            found.append(
                required(
                    f"{field}.values",
                    "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
                )
            )
    else:
        found.append(invalid(f"{field}.operator", operator, "not a valid selector operator"))
    if key != "metadata.name":
        found.append(invalid(f"{field}.key", key, "not a valid field selector key"))
    else:
        for index, value in enumerate(values):
            found += check(f"{field}.values[{index}]", value, dns_subdomain)
    return found


def _check_pod_affinity(affinity: Json, field: str) -> list[FieldError]:
    found: list[FieldError] = []
    for index, term in enumerate(affinity.get(_REQUIRED) or ()):
        found += _check_pod_term(term, f"{field}.{_REQUIRED}[{index}]")
    for index, one in enumerate(affinity.get(_PREFERRED) or ()):
        here = f"{field}.{_PREFERRED}[{index}]"
        found += _check_weight(one, here)
        found += _check_pod_term(one.get("podAffinityTerm") or {}, f"{here}.podAffinityTerm")
    return found


def _check_pod_term(term: Json, field: str) -> list[FieldError]:
    found = check_label_selector(term.get("labelSelector"), f"{field}.labelSelector")
    found += check_label_selector(term.get("namespaceSelector"), f"{field}.namespaceSelector")
    found += _check_match_label_keys(term, field)
    for index, name in enumerate(term.get("namespaces") or ()):
        found += check(f"{field}.namespaces[{index}]", name, dns_label)
    key = term.get("topologyKey", "")
    if not key:
        found.append(required(f"{field}.topologyKey", "can not be empty"))
    return found + check(f"{field}.topologyKey", key, qualified_name)


def _check_match_label_keys(holder: Json, field: str) -> list[FieldError]:
    found: list[FieldError] = []
    for name in ("matchLabelKeys", "mismatchLabelKeys"):
        keys = holder.get(name) or []
        if keys and holder.get("labelSelector") is None:
            found.append(forbidden_field(f"{field}.{name}", "must not be specified when labelSelector is not set"))
        for index, key in enumerate(keys):
            found += check(f"{field}.{name}[{index}]", key, qualified_name)
    both = set(holder.get("matchLabelKeys") or ()) & set(holder.get("mismatchLabelKeys") or ())
    found += [
        invalid(f"{field}.matchLabelKeys[{index}]", key, "exists in both matchLabelKeys and mismatchLabelKeys")
        for index, key in enumerate(holder.get("matchLabelKeys") or ())
        if key in both
    ]
    return found


def check_topology_spread(constraints: list[Json] | None, field: str) -> list[FieldError]:
    """validateTopologySpreadConstraints."""
    found: list[FieldError] = []
    for index, one in enumerate(constraints or ()):
        here = f"{field}[{index}]"
        when, key = one.get("whenUnsatisfiable", ""), one.get("topologyKey", "")
        if (skew := one.get("maxSkew", 0)) <= 0:
            found.append(invalid(f"{here}.maxSkew", skew, "must be greater than zero"))
        if not key:
            found.append(required(f"{here}.topologyKey", "can not be empty"))
        else:
            found += check(f"{here}.topologyKey", key, qualified_name)
        if when not in _WHEN_UNSATISFIABLE:
            found.append(not_supported(f"{here}.whenUnsatisfiable", when, _WHEN_UNSATISFIABLE))
        for later in (constraints or ())[index + 1 :]:
            if later.get("topologyKey", "") == key and later.get("whenUnsatisfiable", "") == when:
                found.append(duplicate(f"{here}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {when}}}"))
                break
        found += _check_min_domains(one, here, when)
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            policy = one.get(name)
            if policy is not None and policy not in _SPREAD_TOPOLOGY_POLICIES:
                found.append(not_supported(f"{here}.{name}", policy, _SPREAD_TOPOLOGY_POLICIES))
        found += _check_match_label_keys(one, here)
        found += check_label_selector(one.get("labelSelector"), f"{here}.labelSelector")
    return found


def _check_min_domains(one: Json, field: str, when: str) -> list[FieldError]:
    domains = one.get("minDomains")
    if domains is None:
        return []
    found = []
    if domains <= 0:
        found.append(invalid(f"{field}.minDomains", domains, "must be greater than zero"))
    if when != "DoNotSchedule":
        text = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {when}"
        found.append(invalid(f"{field}.minDomains", domains, text))
    return found


def check_gates(gates: list[Json] | None, field: str) -> list[FieldError]:
    """validateSchedulingGates: qualified names, each once."""
    found: list[FieldError] = []
    seen: set[str] = set()
    for index, gate in enumerate(gates or ()):
        name = gate.get("name", "")
        found += check(f"{field}[{index}]", name, qualified_name)
        if name in seen:
            found.append(duplicate(f"{field}[{index}]", name))
        seen.add(name)
    return found


def check_readiness_gates(gates: list[Json] | None, field: str) -> list[FieldError]:
    """Condition types are qualified names."""
    found: list[FieldError] = []
    for index, gate in enumerate(gates or ()):
        found += check(f"{field}[{index}].conditionType", gate.get("conditionType", ""), qualified_name)
    return found
