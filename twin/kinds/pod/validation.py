"""Validation of a new pod, and of the pod template of a workload.

Source: ``pkg/apis/core/validation/validation.go`` (ValidatePodSpec, ValidatePodCreate, ValidatePodTemplateSpec); the
order of the checks is theirs. Updates are in ``pod_update``. It does not judge metadata of the object itself: the
machinery does that.
"""

from __future__ import annotations

from typing import Any

from twin.kinds.containers.containers import (
    check_containers,
    check_ephemeral_containers,
    check_image_space,
    check_init_containers,
)
from twin.kinds.pod.resources import aggregate, is_pod_level
from twin.kinds.pod.scheduling_rules import (
    check_affinity,
    check_gates,
    check_readiness_gates,
    check_tolerations,
    check_topology_spread,
)
from twin.kinds.rules.names import (
    check,
    check_annotations,
    check_labels,
    dns_label,
    dns_subdomain,
    range_message,
)
from twin.kinds.rules.quantity import format_nanos, nanos
from twin.kinds.rules.resources import check_amount, check_requirements, check_resource_name
from twin.kinds.storage.volume_rules import check_volumes
from twin.registry.status import FieldError, duplicate, forbidden_field, invalid, not_supported, required

Json = dict[str, Any]

RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
_MAX_INT32 = 2**31 - 1
GATED_WITH_NODE = "cannot be set until all schedulingGates have been cleared"


def check_pod_create(obj: Json) -> list[FieldError]:
    """ValidatePodCreate, without the metadata."""
    spec = obj["spec"]
    found = check_pod_only(obj)
    if spec.get("ephemeralContainers"):
        found.append(forbidden_field("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("schedulingGates") and spec.get("nodeName"):
        found.append(forbidden_field("spec.nodeName", GATED_WITH_NODE))
    return found


def check_pod_only(obj: Json) -> list[FieldError]:
    """validatePodMetadataAndSpec: the spec, and what templates are not asked."""
    spec = obj["spec"]
    found = check_pod_spec(spec, "spec", obj.get("metadata") or {})
    for kind in ("containers", "initContainers"):
        for index, one in enumerate(spec.get(kind) or ()):
            found += check_image_space(one, f"spec.{kind}[{index}]")
    return found


def check_template(template: Json, field: str, *, pod_spec: bool = True) -> list[FieldError]:
    """ValidatePodTemplateSpec: labels, annotations, spec; no ephemeral containers. ``pod_spec`` False: not the spec."""
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    found = check_labels(meta.get("labels"), f"{field}.labels")
    found += check_annotations(meta.get("annotations"), f"{field}.annotations")
    if not pod_spec:
        return found
    found += check_pod_spec(spec, f"{field}.spec", None)
    if spec.get("ephemeralContainers"):
        found.append(
            forbidden_field(f"{field}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template")
        )
    return found


def check_pod_spec(spec: Json, field: str, meta: Json | None) -> list[FieldError]:
    """ValidatePodSpec; ``meta`` is None for a template."""
    volumes: set[str] = set()
    found: list[FieldError] = []
    if spec.get("volumes"):
        volumes, found = check_volumes(spec["volumes"], f"{field}.volumes", (meta or {}).get("name", ""))
    if spec.get("resourceClaims"):
        found += _check_resource_claims(spec["resourceClaims"], f"{field}.resourceClaims")
    found += check_containers(spec, volumes, field)
    if spec.get("initContainers"):
        found += check_init_containers(spec, volumes, field)
    if spec.get("ephemeralContainers"):
        found += check_ephemeral_containers(spec, volumes, field)
    if spec.get("resources"):
        found += _check_pod_resources(spec, f"{field}.resources")
    if spec.get("hostNetwork"):
        found += _check_host_network_ports(spec, field)
    if (policy := spec.get("restartPolicy", "")) not in RESTART_POLICIES:
        found.append(not_supported(f"{field}.restartPolicy", policy, RESTART_POLICIES))
    if (policy := spec.get("dnsPolicy", "")) not in _DNS_POLICIES:
        found.append(not_supported(f"{field}.dnsPolicy", policy, _DNS_POLICIES))
    if spec.get("nodeSelector"):
        found += check_labels(spec["nodeSelector"], f"{field}.nodeSelector")
    if spec.get("securityContext"):
        found += _check_pod_security_context(spec["securityContext"], f"{field}.securityContext")
    if spec.get("affinity"):
        found += check_affinity(spec["affinity"], f"{field}.affinity")
    if spec.get("dnsConfig") or spec.get("dnsPolicy") == "None":
        found += _check_dns_config(spec, field)
    if spec.get("readinessGates"):
        found += check_readiness_gates(spec["readinessGates"], f"{field}.readinessGates")
    if spec.get("schedulingGates"):
        found += check_gates(spec["schedulingGates"], f"{field}.schedulingGates")
    if spec.get("schedulingGroup") is not None:
        found += _check_scheduling_group(spec["schedulingGroup"], f"{field}.schedulingGroup")
    if spec.get("topologySpreadConstraints"):
        found += check_topology_spread(spec["topologySpreadConstraints"], f"{field}.topologySpreadConstraints")
    return found + _check_names(spec, field) + _check_rest(spec, field)


def _check_scheduling_group(group: Json, field: str) -> list[FieldError]:
    """The union names exactly one group, by a name that a PodGroup can have."""
    name = group.get("podGroupName")
    if name is None:
        return [invalid(field, "", "must specify one of: `podGroupName`")]
    return check(f"{field}.podGroupName", name, dns_subdomain)


def _check_names(spec: Json, field: str) -> list[FieldError]:
    found: list[FieldError] = []
    for name, rule in (("serviceAccountName", dns_subdomain), ("nodeName", dns_subdomain)):
        if value := spec.get(name):
            found += check(f"{field}.{name}", value, rule)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _MAX_INT32:
        found.append(invalid(f"{field}.activeDeadlineSeconds", deadline, range_message(1, _MAX_INT32)))
    for name in ("hostname", "subdomain"):
        if value := spec.get(name):
            found += check(f"{field}.{name}", value, dns_label)
    return found


def _check_rest(spec: Json, field: str) -> list[FieldError]:
    found: list[FieldError] = []
    if spec.get("tolerations"):
        found += check_tolerations(spec["tolerations"], f"{field}.tolerations")
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        for number, name in enumerate(alias.get("hostnames") or ()):
            found += check(f"{field}.hostAliases[{index}].hostnames[{number}]", name, dns_subdomain)
    for name in ("priorityClassName", "runtimeClassName"):
        if value := spec.get(name):
            found += check(f"{field}.{name}", value, dns_subdomain)
    preemption = spec.get("preemptionPolicy")
    if preemption is not None and preemption not in PREEMPTION_POLICIES:
        found.append(not_supported(f"{field}.preemptionPolicy", preemption, PREEMPTION_POLICIES))
    for name, amount in (spec.get("overhead") or {}).items():
        found += check_resource_name(name, f"{field}.overhead[{name}]")
        found += check_amount(name, amount, f"{field}.overhead[{name}]")
    if spec.get("os"):
        system = spec["os"].get("name", "")
        if not system:
            found.append(required(f"{field}.os.name"))
        elif system not in ("linux", "windows"):
            found.append(not_supported(f"{field}.os.name", system, ("linux", "windows")))
    return found


def _check_resource_claims(claims: list[Json], field: str) -> list[FieldError]:
    found: list[FieldError] = []
    names: set[str] = set()
    for index, claim in enumerate(claims):
        here, name = f"{field}[{index}]", claim.get("name", "")
        if not name:
            found.append(required(f"{here}.name"))
        elif name in names:
            found.append(duplicate(f"{here}.name", name))
        else:
            found += check(f"{here}.name", name, dns_label)
        names.add(name)
        sources = [key for key in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(key) is not None]
        if len(sources) != 1:
            text = (
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
                if sources
                else "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            )
            found.append(invalid(here, claim, text))
    return found


def _check_pod_resources(spec: Json, field: str) -> list[FieldError]:
    resources = spec["resources"]
    found: list[FieldError] = []
    if resources.get("claims"):
        found.append(forbidden_field(f"{field}.claims", "claims cannot be set for Resources at pod-level"))
    for part in ("limits", "requests"):
        found += [
            not_supported(f"{field}.{part}[{name}]", name, ("cpu", "hugepages-", "memory"))
            for name in resources.get(part) or ()
            if not is_pod_level(name)
        ]
    if not found:
        found += check_requirements(resources, field)
    requests = resources.get("requests") or {}
    for name, total in sorted(aggregate(spec, "requests").items()):
        given = requests.get(name, "0")
        if total > nanos(given) and is_pod_level(name):
            text = f"must be greater than or equal to aggregate container requests of {format_nanos(total, given)}"
            found.append(invalid(f"{field}.requests[{name}]", given, text))
    limits = resources.get("limits") or {}
    for index, one in enumerate(spec.get("containers") or ()):
        for name, amount in ((one.get("resources") or {}).get("limits") or {}).items():
            if name in limits and nanos(amount) > nanos(limits[name]):
                text = f"must be less than or equal to pod limits of {limits[name]}"
                found.append(invalid(f"{field}.containers[{index}][{name}].limits", amount, text))
    return found


def _check_host_network_ports(spec: Json, field: str) -> list[FieldError]:
    found: list[FieldError] = []
    for kind in ("containers", "initContainers"):
        for index, one in enumerate(spec.get(kind) or ()):
            for number, port in enumerate(one.get("ports") or ()):
                if port.get("hostPort", 0) != port.get("containerPort"):
                    here = f"{field}.{kind}[{index}].ports[{number}].hostPort"
                    found.append(
                        invalid(here, port.get("hostPort", 0), "must match `containerPort` when `hostNetwork` is true")
                    )
    return found


def _check_pod_security_context(context: Json, field: str) -> list[FieldError]:
    found: list[FieldError] = []
    for name in ("fsGroup", "runAsUser", "runAsGroup"):
        value = context.get(name)
        if value is not None and not 0 <= value <= _MAX_INT32:
            found.append(invalid(f"{field}.{name}", value, range_message(0, _MAX_INT32)))
    for index, value in enumerate(context.get("supplementalGroups") or ()):
        if not 0 <= value <= _MAX_INT32:
            found.append(invalid(f"{field}.supplementalGroups[{index}]", value, range_message(0, _MAX_INT32)))
    change = context.get("fsGroupChangePolicy")
    if change not in (None, "Always", "OnRootMismatch"):
        found.append(not_supported(f"{field}.fsGroupChangePolicy", change, ("Always", "OnRootMismatch")))
    return found


def _check_dns_config(spec: Json, field: str) -> list[FieldError]:
    here, config = f"{field}.dnsConfig", spec.get("dnsConfig")
    servers = (config or {}).get("nameservers") or []
    if spec.get("dnsPolicy") == "None":
        if config is None:
            return [required(here, "must provide `dnsConfig` when `dnsPolicy` is None")]
        if not servers:
            text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            return [required(f"{here}.nameservers", text)]
    found: list[FieldError] = []
    searches = (config or {}).get("searches") or []
    if len(servers) > 3:
        found.append(invalid(f"{here}.nameservers", servers, "must not have more than 3 nameservers"))
    if len(searches) > 32:
        found.append(invalid(f"{here}.searches", searches, "must not have more than 32 search paths"))
    for index, option in enumerate((config or {}).get("options") or ()):
        if not option.get("name"):
            found.append(required(f"{here}.options[{index}]", "must not be empty"))
    return found
