"""Workloads and PodGroups: ``scheduling.k8s.io`` v1alpha2 (Kubernetes 1.36) and v1beta1 (1.37).

Sources: ``k8s.io/api/scheduling`` (types and their validation tags), ``pkg/registry/scheduling/{workload,podgroup}``.
Both are behind the gate GenericWorkload, which is off by default there and on here. A server has one of the two
versions; nothing is converted between them, as in an upgrade.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twin.kinds.pod.validation import PREEMPTION_POLICIES
from twin.kinds.policy.priority_class import HIGHEST_USER_VALUE
from twin.kinds.rules.conditions import check_conditions
from twin.kinds.rules.names import check, check_given, dns_label, dns_subdomain, qualified_name
from twin.kinds.rules.typed import TypedStrategy
from twin.registry.status import (
    FieldError,
    duplicate,
    forbidden,
    forbidden_field,
    invalid,
    not_supported,
    required,
    too_many,
)
from twin.registry.strategy import KindInfo, RequestContext

Json = dict[str, Any]

GROUP, PODGROUPS = "scheduling.k8s.io", "podgroups.scheduling.k8s.io"
_PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"
_MOST_TEMPLATES, _MOST_CLAIMS, _DEEPEST_TREE = 8, 4, 4
_MODES = ("Pod", "PodGroup")
_IMMUTABLE = "field is immutable"


def path_segment(value: str) -> list[str]:
    """IsPathSegmentName."""
    if value in (".", ".."):
        return [f"may not be '{value}'"]
    return [f"may not contain '{one}'" for one in ("/", "%") if one in value]


class _Grouped(TypedStrategy):
    """What the two kinds share in both versions."""

    beta = False
    """v1beta1: disruptionMode is a union, minCount may change, groups may be nested."""

    def check_scheduling(self, spec: Json, field: str) -> list[FieldError]:
        """The fields that a PodGroup has from its template."""
        found = _check_policy(spec.get("schedulingPolicy") or {}, f"{field}.schedulingPolicy", "minCount")
        found += _check_constraints(spec.get("schedulingConstraints"), f"{field}.schedulingConstraints")
        found += _check_claims(spec.get("resourceClaims") or (), f"{field}.resourceClaims")
        mode, where = spec.get("disruptionMode"), f"{field}.disruptionMode"
        if self.beta:
            if mode is not None:
                found += _one_of(mode, where, ("single", "all"))
        elif mode is not None and mode not in _MODES:
            found.append(not_supported(where, mode, _MODES))
        return found + _check_importance(spec, field)


def _one_of(holder: Json, field: str, members: tuple[str, ...]) -> list[FieldError]:
    """A union: exactly one member is set."""
    given = [f"`{name}`" for name in members if holder.get(name) is not None]
    listed = ", ".join(f"`{name}`" for name in members)
    if not given:
        return [invalid(field, "", f"must specify one of: {listed}")]
    if len(given) > 1:
        text = f"exactly one of {listed} is required, but multiple fields are set"
        return [invalid(field, f"{{{', '.join(given)}}}", text)]
    return []


def _check_policy(policy: Json, field: str, count: str) -> list[FieldError]:
    found = _one_of(policy, field, ("basic", "gang"))
    if found or policy.get("gang") is None:
        return found
    value, where = policy["gang"].get(count, 0), f"{field}.gang.{count}"
    if value == 0:
        return [required(where)]
    return [invalid(where, value, "must be greater than or equal to 1")] if value < 1 else []


def _check_constraints(constraints: Json | None, field: str) -> list[FieldError]:
    topology = (constraints or {}).get("topology") or ()
    if len(topology) > 1:
        return [too_many(f"{field}.topology", len(topology), 1)]
    return [
        error
        for index, one in enumerate(topology)
        for error in check_given(f"{field}.topology[{index}].key", one.get("key", ""), qualified_name)
    ]


def _check_claims(claims: Iterable[Json], field: str) -> list[FieldError]:
    claims = list(claims)
    found = [too_many(field, len(claims), _MOST_CLAIMS)] if len(claims) > _MOST_CLAIMS else []
    names: set[str] = set()
    for index, claim in enumerate(claims):
        where = f"{field}[{index}]"
        found += check_given(f"{where}.name", claim.get("name", ""), dns_label)
        if claim.get("name") in names:
            found.append(duplicate(where, claim))
        names.add(claim.get("name", ""))
        found += _one_of(claim, where, ("resourceClaimName", "resourceClaimTemplateName"))
        for name in ("resourceClaimName", "resourceClaimTemplateName"):
            if claim.get(name) is not None:
                found += check(f"{where}.{name}", claim[name], dns_subdomain)
    return found


def _check_importance(spec: Json, field: str) -> list[FieldError]:
    """Priority and preemption policy."""
    found: list[FieldError] = []
    if name := spec.get("priorityClassName"):
        found += check(f"{field}.priorityClassName", name, dns_subdomain)
    priority = spec.get("priority")
    if priority is not None and priority > HIGHEST_USER_VALUE and not (name or "").startswith("system-"):
        found.append(invalid(f"{field}.priority", priority, f"must be less than or equal to {HIGHEST_USER_VALUE}"))
    policy = spec.get("preemptionPolicy")
    if policy is not None and policy not in PREEMPTION_POLICIES:
        found.append(not_supported(f"{field}.preemptionPolicy", policy, sorted(PREEMPTION_POLICIES)))
    return found


def _check_kept(new: Json, old: Json, field: str, names: Iterable[str]) -> list[FieldError]:
    """These fields are as they were."""
    return [invalid(f"{field}.{name}", new.get(name), _IMMUTABLE) for name in names if new.get(name) != old.get(name)]


# --- PodGroup --------------------------------------------------------------------------------------------------------


class PodGroupV1alpha2Strategy(_Grouped):
    """scheduling.k8s.io/v1alpha2 PodGroup: nothing of its spec ever changes."""

    info = KindInfo(GROUP, "v1alpha2", "PodGroup", "podgroups", "podgroup", True, gated=True)
    go_type = "scheduling/v1alpha2.PodGroup"

    def default(self, obj: Json) -> None:
        obj["spec"].setdefault("disruptionMode", "Pod")

    def admit(self, obj: Json, old: Json | None, ctx: RequestContext) -> None:
        """Priority, as of pods; a group without a class has the priority that it names, or none of its own."""
        spec, name = obj["spec"], obj["metadata"].get("name") or obj["metadata"].get("generateName") or ""
        if old is not None or ctx.subresource:
            return
        wanted, chosen = spec.get("priorityClassName"), None
        if wanted:
            chosen = ctx.reader.get(_PRIORITY_CLASSES, "", wanted)
            if chosen is None:
                text = f"no PriorityClass with name {wanted} was found"
                raise forbidden(self.info.plural, self.info.group, name, text)
        elif spec.get("priority") is None:
            defaults = [one for one in ctx.reader.list(_PRIORITY_CLASSES) if one.get("globalDefault")]
            chosen = min(defaults, key=lambda one: one["value"]) if defaults else None
        if chosen is None:
            return
        given = spec.get("priority")
        if given is not None and given != chosen["value"]:
            text = (
                f"the integer value of priority ({given}) must not be provided in pod group spec; priority admission "
                f"controller computed {chosen['value']} from the given PriorityClass name"
            )
            raise forbidden(self.info.plural, self.info.group, name, text)
        spec["priorityClassName"], spec["priority"] = chosen["metadata"]["name"], chosen["value"]

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        return self.check_reference(spec) + self.check_scheduling(spec, "spec")

    def check_reference(self, spec: Json) -> list[FieldError]:
        """The template that it is made from."""
        reference = spec.get("podGroupTemplateRef")
        if reference is None:
            return []
        where = "spec.podGroupTemplateRef"
        workload = reference.get("workload")
        if workload is None:
            return [invalid(where, "", "must specify one of: `workload`")]
        found = check_given(f"{where}.workload.workloadName", workload.get("workloadName", ""), dns_subdomain)
        return found + check_given(
            f"{where}.workload.podGroupTemplateName", workload.get("podGroupTemplateName", ""), dns_label
        )

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        fields = (
            "podGroupTemplateRef", "schedulingPolicy", "schedulingConstraints", "resourceClaims", "disruptionMode",
            "priorityClassName", "priority",
        )  # fmt: skip
        return self.validate(obj, ctx) + _check_kept(obj["spec"], old["spec"], "spec", fields)

    def validate_status_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        status = obj.get("status") or {}
        claims = {one["name"] for one in obj["spec"].get("resourceClaims") or ()}
        found = check_conditions(status.get("conditions") or (), "status.conditions")
        for index, one in enumerate(status.get("resourceClaimStatuses") or ()):
            where = f"status.resourceClaimStatuses[{index}].name"
            if one.get("name") not in claims:
                text = "must match the name of an entry in `spec.resourceClaims`"
                found.append(invalid(where, one.get("name", ""), text))
        return found


class PodGroupV1beta1Strategy(PodGroupV1alpha2Strategy):
    """scheduling.k8s.io/v1beta1 PodGroup: a gang's minCount may change."""

    info = KindInfo(GROUP, "v1beta1", "PodGroup", "podgroups", "podgroup", True, gated=True)
    go_type = "scheduling/v1beta1.PodGroup"
    beta = True

    def default(self, obj: Json) -> None:
        obj["spec"].setdefault("disruptionMode", {"single": {}})

    def check_reference(self, spec: Json) -> list[FieldError]:
        found: list[FieldError] = []
        parent, reference = spec.get("parentCompositePodGroupName"), spec.get("workloadRef")
        if parent is not None:
            found += check("spec.parentCompositePodGroupName", parent, dns_subdomain)
            if reference is None:
                found.append(required("spec.workloadRef", "when `parentCompositePodGroupName` is specified"))
        if reference is not None:
            found += check_given("spec.workloadRef.workloadName", reference.get("workloadName", ""), dns_subdomain)
            found += check_given("spec.workloadRef.templateName", reference.get("templateName", ""), dns_label)
        return found

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        fields = (
            "parentCompositePodGroupName", "workloadRef", "schedulingConstraints", "resourceClaims", "disruptionMode",
            "priorityClassName", "priority", "preemptionPolicy",
        )  # fmt: skip
        new, before = obj["spec"], old["spec"]
        found = self.validate(obj, ctx) + _check_policy_kept(new, before, "spec.schedulingPolicy")
        return found + _check_kept(new, before, "spec", fields)


def _check_policy_kept(new: Json, old: Json, field: str) -> list[FieldError]:
    """The policy was chosen at creation; what it counts may change."""
    found: list[FieldError] = []
    now, before = new.get("schedulingPolicy") or {}, old.get("schedulingPolicy") or {}
    for name in ("basic", "gang"):
        if now.get(name) is not None and before.get(name) is None:
            found.append(invalid(f"{field}.{name}", now[name], "field cannot be set once created"))
        elif now.get(name) is None and before.get(name) is not None:
            found.append(invalid(f"{field}.{name}", None, "field cannot be cleared once set"))
    return found


# --- Workload --------------------------------------------------------------------------------------------------------


class WorkloadV1alpha2Strategy(_Grouped):
    """scheduling.k8s.io/v1alpha2 Workload: nothing of its spec ever changes but that a controllerRef may be added."""

    info = KindInfo(GROUP, "v1alpha2", "Workload", "workloads", "workload", True, gated=True)
    go_type = "scheduling/v1alpha2.Workload"
    resets_status = False

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        found = _check_controller(spec.get("controllerRef"), "spec.controllerRef")
        if not spec.get("podGroupTemplates"):
            return [*found, required("spec.podGroupTemplates")]
        return found + self.check_templates(spec["podGroupTemplates"], "spec.podGroupTemplates")

    def check_templates(self, templates: list[Json], field: str) -> list[FieldError]:
        """Up to 8 of them, by name."""
        found = [too_many(field, len(templates), _MOST_TEMPLATES)] if len(templates) > _MOST_TEMPLATES else []
        found += _check_template_names(templates, field)
        for index, template in enumerate(templates):
            found += self.check_scheduling(template, f"{field}[{index}]")
        return found

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        fields = ["podGroupTemplates", *(["controllerRef"] if old["spec"].get("controllerRef") else [])]
        return self.validate(obj, ctx) + _check_kept(obj["spec"], old["spec"], "spec", fields)


class WorkloadV1beta1Strategy(WorkloadV1alpha2Strategy):
    """scheduling.k8s.io/v1beta1 Workload: templates of groups, or of groups of groups."""

    info = KindInfo(GROUP, "v1beta1", "Workload", "workloads", "workload", True, gated=True)
    go_type = "scheduling/v1beta1.Workload"
    beta = True

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        given = {name: value for name, value in spec.items() if value}
        found = _check_controller(spec.get("controllerRef"), "spec.controllerRef")
        found += _one_of(given, "spec", ("podGroupTemplates", "compositePodGroupTemplates"))
        found += self.check_templates(spec.get("podGroupTemplates") or [], "spec.podGroupTemplates")
        return found + self._check_composite(spec.get("compositePodGroupTemplates") or [], "spec", 1)

    def _check_composite(self, templates: list[Json], above: str, level: int) -> list[FieldError]:
        field = f"{above}.compositePodGroupTemplates"
        if templates and level >= _DEEPEST_TREE:
            return [forbidden_field(field, f"the tree of templates may not be deeper than {_DEEPEST_TREE}")]
        found = [too_many(field, len(templates), _MOST_TEMPLATES)] if len(templates) > _MOST_TEMPLATES else []
        found += _check_template_names(templates, field)
        for index, one in enumerate(templates):
            where = f"{field}[{index}]"
            found += _check_policy(one.get("schedulingPolicy") or {}, f"{where}.schedulingPolicy", "minGroupCount")
            found += _check_constraints(one.get("schedulingConstraints"), f"{where}.schedulingConstraints")
            found += _check_importance(one, where)
            if one.get("disruptionMode") is not None:
                found += _one_of(one["disruptionMode"], f"{where}.disruptionMode", ("single", "all"))
            if not one.get("podGroupTemplates") and not one.get("compositePodGroupTemplates"):
                found.append(required(where, "at least one of `podGroupTemplates`, `compositePodGroupTemplates`"))
            found += self.check_templates(one.get("podGroupTemplates") or [], f"{where}.podGroupTemplates")
            found += self._check_composite(one.get("compositePodGroupTemplates") or [], where, level + 1)
        return found

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        new, before = obj["spec"], old["spec"]
        fields = ["compositePodGroupTemplates", *(["controllerRef"] if before.get("controllerRef") else [])]
        return (
            self.validate(obj, ctx)
            + _check_templates_kept(new.get("podGroupTemplates") or [], before.get("podGroupTemplates") or [])
            + _check_kept(new, before, "spec", fields)
        )


def _check_templates_kept(new: list[Json], old: list[Json]) -> list[FieldError]:
    """None comes or goes; of each a gang's minCount may change."""
    field = "spec.podGroupTemplates"
    before = {one["name"]: one for one in old}
    found: list[FieldError] = []
    for index, one in enumerate(new):
        where, known = f"{field}[{index}]", before.get(one["name"])
        if known is None:
            found.append(forbidden_field(where, "items may not be added"))
            continue
        found += _check_policy_kept(one, known, f"{where}.schedulingPolicy")
        names = sorted((one.keys() | known.keys()) - {"schedulingPolicy"})
        found += _check_kept(one, known, where, names)
    if before.keys() - {one["name"] for one in new}:
        found.append(forbidden_field(field, "items may not be removed"))
    return found


def _check_template_names(templates: list[Json], field: str) -> list[FieldError]:
    found: list[FieldError] = []
    names: set[str] = set()
    for index, one in enumerate(templates):
        name = one.get("name", "")
        found += check_given(f"{field}[{index}].name", name, dns_label)
        if name in names:
            found.append(duplicate(f"{field}[{index}]", one))
        names.add(name)
    return found


def _check_controller(reference: Json | None, field: str) -> list[FieldError]:
    if reference is None:
        return []
    found = check(f"{field}.apiGroup", reference["apiGroup"], dns_subdomain) if reference.get("apiGroup") else []
    for name in ("kind", "name"):
        found += check_given(f"{field}.{name}", reference.get(name, ""), path_segment)
    return found


def pod_group_strategies(kubernetes: str) -> list[_Grouped]:
    """The kinds as ``kubernetes`` ("1.36", "1.37") has them."""
    if kubernetes == "1.36":
        return [WorkloadV1alpha2Strategy(), PodGroupV1alpha2Strategy()]
    return [WorkloadV1beta1Strategy(), PodGroupV1beta1Strategy()]
