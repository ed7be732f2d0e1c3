"""Evicting a pod: ``pods/NAME/eviction``, against the budget that covers it.

Source: ``pkg/registry/core/pod/storage/eviction.go`` (Create, checkAndDecrement, addConditionAndDeletePod). A pod that
does not run, or runs unhealthily under the right policy, costs no budget.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twin.kinds.pod.binding import with_condition
from twin.kinds.rules.names import selector_matches
from twin.kinds.rules.typed import decode_body, expect_kind, expect_namespace
from twin.registry.deleting import delete_options
from twin.registry.status import (
    bad_request,
    conflict,
    forbidden,
    not_found,
    plain_error,
    success,
    too_many_requests,
)
from twin.registry.strategy import HandlerResult, ObjectRegistry, RequestContext

Json = dict[str, Any]

_EVICTION = (("policy/v1", "Eviction"), ("policy/v1beta1", "Eviction"))
_BUDGETS = "poddisruptionbudgets.policy"
_MAX_DISRUPTED_PODS = 2000
_RETRY_S = 10
_VIOLATES = "Cannot evict pod as it would violate the pod's disruption budget."
_CONDITION = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


def evict_pod(ctx: RequestContext, registry: ObjectRegistry, name: str, body: Json) -> HandlerResult:
    """POST pods/NAME/eviction. Refused: 400, 404, 409 (preconditions), 429 (budget), 500 (several budgets).

    The budget comes before the preconditions, as in the real server: a conflict has cost a disruption already.
    """
    expect_kind(body, _EVICTION, "Eviction", "policy.Eviction")
    body = decode_body("policy/v1.Eviction", "Eviction", "v1", body, ctx)
    expect_namespace(body, ctx)
    if body["metadata"].get("name", "") != name:
        raise bad_request("name in URL does not match name in Eviction object")
    options = delete_options({}, body.get("deleteOptions") or {})
    dry_run = ctx.dry_run or bool(options.get("dryRun"))
    if dry_run:
        options["dryRun"] = ["All"]
        ctx = replace(ctx, dry_run=True)
    pod = registry.get("pods", ctx.namespace, name)
    if pod is None:
        raise not_found("pods", "", name)
    if not _costs_nothing(pod):
        _take_from_budget(ctx, registry, pod, dry_run=dry_run)
    if not dry_run:
        _mark(ctx, registry, name, options)
    registry.delete(ctx, "pods", ctx.namespace, name, options)
    return HandlerResult(201, success(code=201))


def _check_preconditions(conditions: Json, pod: Json) -> None:
    meta = pod["metadata"]
    for field, title, ending in (
        ("uid", "UID", "The object might have been deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "The object might have been modified"),
    ):
        wanted, current = conditions.get(field), meta[field]
        if wanted and wanted != current:
            text = (
                f"the {title} in the precondition ({wanted}) does not match the {title} in record ({current}). {ending}"
            )
            raise conflict("Pod", "", meta["name"], text)


def _costs_nothing(pod: Json) -> bool:
    return bool(
        pod["metadata"].get("deletionTimestamp") or pod["status"].get("phase") in ("Pending", "Succeeded", "Failed")
    )


def _is_ready(pod: Json) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions") or ())


def _mark(ctx: RequestContext, registry: ObjectRegistry, name: str, options: Json) -> None:
    """Say why the pod goes before it does; a resourceVersion precondition then means the marked pod."""
    conditions = options.get("preconditions") or {}

    def add_condition(old: Json) -> Json:
        _check_preconditions(conditions, old)
        known = old["status"].get("conditions") or []
        return {**old, "status": {**old["status"], "conditions": with_condition(known, _CONDITION, ctx.now)}}

    registry.guaranteed_update(ctx, "pods", ctx.namespace, name, add_condition)
    marked = registry.get("pods", ctx.namespace, name)
    if conditions.get("resourceVersion") and marked is not None:
        options["preconditions"] = {**conditions, "resourceVersion": marked["metadata"]["resourceVersion"]}


def _take_from_budget(ctx: RequestContext, registry: ObjectRegistry, pod: Json, *, dry_run: bool) -> None:
    labels = pod["metadata"].get("labels") or {}
    budgets = [
        one for one in registry.list(_BUDGETS, ctx.namespace) if selector_matches(one["spec"].get("selector"), labels)
    ]
    if not budgets:
        return
    if len(budgets) > 1:
        raise plain_error(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    budget = budgets[0]
    status = budget["status"]
    if not _is_ready(pod):
        if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
            return
        if status["currentHealthy"] >= status["desiredHealthy"] > 0:
            return
    name = pod["metadata"]["name"]
    if dry_run:
        decremented(budget, name, ctx.now)
        return
    registry.guaranteed_update(
        ctx, _BUDGETS, ctx.namespace, budget["metadata"]["name"], lambda old: decremented(old, name, ctx.now)
    )


def decremented(budget: Json, pod_name: str, now: str) -> Json:
    """checkAndDecrement: the budget with one disruption less, remembering the pod. 429 when there is none left."""
    status, name = budget["status"], budget["metadata"]["name"]
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        message = f"The disruption budget {name} is still being processed by the server."
        raise too_many_requests(_VIOLATES, _RETRY_S, [_cause(message)])
    allowed = status["disruptionsAllowed"]
    if allowed < 0:
        raise forbidden("poddisruptionbudget", "policy", name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or ()) > _MAX_DISRUPTED_PODS:
        text = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden("poddisruptionbudget", "policy", name, text)
    if allowed == 0:
        raise too_many_requests(_VIOLATES, 0, [_cause(_exhausted(name, status))])
    new = {**status, "disruptionsAllowed": allowed - 1}
    new["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod_name: now}
    if allowed == 1:
        new["conditions"] = _disruption_not_allowed(status, now)
    return {**budget, "status": new}


def _exhausted(name: str, status: Json) -> str:
    healthy, desired = status["currentHealthy"], status["desiredHealthy"]
    if healthy <= desired:
        return f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    return f"The disruption budget {name} does not allow evicting pods currently"


def _cause(message: str) -> Json:
    return {"reason": "DisruptionBudget", "message": message}


def _disruption_not_allowed(status: Json, now: str) -> list[Json]:
    conditions: list[Json] = list(status.get("conditions") or ())
    fresh = {
        "type": "DisruptionAllowed",
        "status": "False",
        "observedGeneration": status.get("observedGeneration", 0),
        "lastTransitionTime": now,
        "reason": "InsufficientPods",
        "message": "",
    }
    for index, condition in enumerate(conditions):
        if condition["type"] == fresh["type"]:
            if condition["status"] == fresh["status"]:
                fresh["lastTransitionTime"] = condition["lastTransitionTime"]
            conditions[index] = fresh
            return conditions
    return [*conditions, fresh]
