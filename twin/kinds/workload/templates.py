"""What all controllers' kinds share: templates with a matching selector, roll-out bounds.

Source: ``pkg/apis/apps/validation`` (ValidatePodTemplateSpecForReplicaSet, ValidateRollingUpdateDeployment ...).
"""

from __future__ import annotations

from typing import Any

from twin.kinds.pod.defaults import default_pod_spec
from twin.kinds.pod.validation import check_template
from twin.kinds.pod.warnings import template_warnings
from twin.kinds.policy.disruption_budget import check_count_or_percent
from twin.kinds.rules.names import (
    check_label_selector,
    check_not_negative,
    dns_label,
    selector_matches,
    selector_text,
)
from twin.kinds.rules.printing import NONE, Cell, labels_text
from twin.kinds.rules.typed import TypedStrategy
from twin.registry.status import FieldError, forbidden_field, invalid, not_supported, required
from twin.registry.strategy import RequestContext

Json = dict[str, Any]

_NAME_TEXT = (
    "this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended"
)
_MISMATCH = "`selector` does not match template `labels`"


class WorkloadStrategy(TypedStrategy):
    """A kind with ``spec.selector`` and ``spec.template``."""

    allow_unconditional_update = True
    word = "deployment"
    """As it stands in ``empty selector is invalid for WORD``."""
    names_pods = True
    """Its name becomes part of its pods' hostnames, so a name that is no label is warned of."""
    checks_pod_spec = True
    """Whether the template's pod spec is validated."""

    def default(self, obj: Json) -> None:
        template = obj["spec"].get("template")
        if template:
            default_pod_spec(template["spec"])

    def warnings(self, obj: Json, old: Json | None, ctx: RequestContext) -> list[str]:
        found = []
        if old is None and self.names_pods and (messages := dns_label(obj["metadata"].get("name") or "a")):
            found.append(f"metadata.name: {_NAME_TEXT}: [{' '.join(messages)}]")
        template = obj["spec"].get("template")
        if template and (old is None or old["spec"].get("template") != template):
            found += template_warnings(template["spec"], template.get("metadata") or {}, "spec.template.")
        return found

    def check_selector(self, spec: Json) -> list[FieldError]:
        """``spec.selector`` is there, valid and not empty."""
        selector = spec.get("selector")
        if selector is None:
            return [required("spec.selector")]
        found = check_label_selector(selector, "spec.selector")
        if not selector:
            found.append(invalid("spec.selector", selector, f"empty selector is invalid for {self.word}"))
        return found

    def check_workload_template(self, spec: Json) -> list[FieldError]:
        """The template matches the selector, is valid, and always restarts."""
        template = spec.get("template") or {}
        selector = spec.get("selector")
        labels = (template.get("metadata") or {}).get("labels") or {}
        found: list[FieldError] = []
        if selector and not selector_matches(selector, labels):
            found.append(invalid("spec.template.metadata.labels", labels, _MISMATCH))
        found += check_template(template, "spec.template", pod_spec=self.checks_pod_spec)
        pod = template.get("spec") or {}
        if pod.get("restartPolicy") != "Always":
            field = "spec.template.spec.restartPolicy"
            found.append(not_supported(field, pod.get("restartPolicy", ""), ("Always",)))
        if pod.get("activeDeadlineSeconds") is not None:
            name = self.info.kind
            text = f"activeDeadlineSeconds in {name if name != 'Deployment' else 'ReplicaSet'} is not Supported"
            found.append(forbidden_field("spec.template.spec.activeDeadlineSeconds", text))
        return found

    def check_selector_kept(self, obj: Json, old: Json) -> list[FieldError]:
        """``spec.selector`` cannot change."""
        selector = obj["spec"].get("selector")
        if selector == old["spec"].get("selector"):
            return []
        return [invalid("spec.selector", selector, "field is immutable")]


def check_counts(holder: Json, field: str, *names: str) -> list[FieldError]:
    """None of the fields is negative."""
    found: list[FieldError] = []
    for name in names:
        found += check_not_negative(f"{field}.{name}", holder.get(name))
    return found


def check_rolling_update(update: Json | None, field: str) -> list[FieldError]:
    """maxUnavailable and maxSurge are counts or percentages, and not both zero."""
    if update is None:
        return []
    found: list[FieldError] = []
    unavailable, surge = update.get("maxUnavailable", 0), update.get("maxSurge", 0)
    found += check_count_or_percent(unavailable, f"{field}.maxUnavailable")
    found += _check_surge(surge, f"{field}.maxSurge")
    if unavailable in (0, "0%") and surge in (0, "0%"):
        found.append(invalid(f"{field}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
    return found


def _check_surge(value: int | str, field: str) -> list[FieldError]:
    """More than 100 % is allowed upwards."""
    return [error for error in check_count_or_percent(value, field) if "100%" not in error.message]


def container_cells(template: Json | None) -> tuple[str, str]:
    """(names, images) of the containers, comma-separated."""
    containers = ((template or {}).get("spec") or {}).get("containers") or []
    names = ",".join(one["name"] for one in containers)
    return names, ",".join(one.get("image", "") for one in containers)


def ready_text(obj: Json) -> str:
    """Ready of wanted."""
    return f"{obj['status'].get('readyReplicas', 0)}/{obj['spec'].get('replicas', 0)}"


def selector_cell(selector: Json | None) -> str:
    """A plain map or a label selector."""
    if not selector:
        return NONE
    if all(isinstance(value, str) for value in selector.values()):
        return labels_text(selector)
    return selector_text(selector) or NONE


CONTAINER_CELLS: tuple[Cell, ...] = (
    ("Containers", lambda obj: container_cells(obj["spec"].get("template"))[0]),
    ("Images", lambda obj: container_cells(obj["spec"].get("template"))[1]),
    ("Selector", lambda obj: selector_cell(obj["spec"].get("selector"))),
)
"""What ``-o wide`` adds."""
