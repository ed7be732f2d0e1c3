"""ResourceQuotas, and the admission that holds pods to them.

Sources: ``plugin/pkg/admission/resourcequota``, ``pkg/quota/v1/evaluator/core/pods.go``, ``pkg/apis/core/validation``.
As in a real server a quota holds from the moment on that its status names a limit (a controller's work), and admission
only ever adds to ``status.used``: giving back is the controller's work too. Counted are pods and what they ask for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twin.kinds.pod.resources import containers, pod_requests, qos_class
from twin.kinds.rules.printing import printed
from twin.kinds.rules.quantity import format_nanos, nanos
from twin.kinds.rules.resources import check_amount, check_resource_name
from twin.kinds.rules.typed import TypedStrategy
from twin.registry.status import ApiError, FieldError, forbidden, forbidden_field
from twin.registry.strategy import KindInfo, RequestContext

Json = dict[str, Any]
Amounts = dict[str, int]

_RESOURCE = "resourcequotas"
_ONE = 10**9
_PLAIN = ("cpu", "memory", "ephemeral-storage")
_MANDATORY = (
    "cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory",
)  # fmt: skip


class ResourceQuotaStrategy(TypedStrategy):
    """Core v1 ResourceQuota."""

    info = KindInfo("", "v1", "ResourceQuota", "resourcequotas", "resourcequota", True, short_names=("quota",))
    go_type = "core/v1.ResourceQuota"
    has_generation = False
    returns_deleted = True
    table = printed(
        "Name",
        ("Request", lambda obj: ", ".join(text for text in _amount_texts(obj) if not text.startswith("limits."))),
        ("Limit", lambda obj: ", ".join(text for text in _amount_texts(obj) if text.startswith("limits."))),
        "Age",
    )

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        found: list[FieldError] = []
        for name, amount in (obj["spec"].get("hard") or {}).items():
            field = f"spec.hard[{name}]"
            if not name.startswith("count/"):
                found += check_resource_name(name.removeprefix("requests.").removeprefix("limits."), field)
            found += check_amount(name, amount, field)
        return found

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        found = self.validate(obj, ctx)
        if sorted(obj["spec"].get("scopes") or ()) != sorted(old["spec"].get("scopes") or ()):
            found.append(forbidden_field("spec.scopes", "field is immutable"))
        return found


def _amount_texts(obj: Json) -> list[str]:
    hard, used = obj["status"].get("hard") or {}, obj["status"].get("used") or {}
    return [f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(hard)]


def admit_quota(obj: Json, ctx: RequestContext) -> None:
    """Count a new pod against every quota that covers it, or refuse it with 403."""
    covering = [
        one
        for one in ctx.reader.list(_RESOURCE, ctx.namespace)
        if (one["status"].get("hard")) and _covers(one["spec"], obj["spec"])
    ]
    if not covering:
        return
    usage = pod_usage(obj["spec"])
    for quota in covering:
        _check(obj, quota, usage)
    if ctx.registry is None:
        return
    for quota in covering:
        name = quota["metadata"]["name"]
        ctx.registry.guaranteed_update(ctx, _RESOURCE, ctx.namespace, name, lambda old: counted(old, usage))


def pod_usage(spec: Json) -> Amounts:
    """What one pod uses of everything that quotas count, in units of 1e-9."""
    usage: Amounts = {"pods": _ONE, "count/pods": _ONE}
    for name, amount in pod_requests(spec).items():
        if name in _PLAIN or name.startswith("hugepages-"):
            usage[name] = amount
        usage[f"requests.{name}"] = amount
    for name, amount in pod_requests(spec, "limits").items():
        if name in _PLAIN:
            usage[f"limits.{name}"] = amount
    return usage


def counted(quota: Json, usage: Amounts) -> Json:
    """The quota with ``usage`` added to what is used."""
    status = quota["status"]
    used = dict(status.get("used") or {})
    for name in status.get("hard") or ():
        if name in usage:
            before = used.get(name, "0")
            like = before if nanos(before) else status["hard"][name]
            used[name] = format_nanos(nanos(before) + usage[name], like)
    return {**quota, "status": {**status, "used": used}}


def _check(obj: Json, quota: Json, usage: Amounts) -> None:
    hard, used = quota["status"]["hard"], quota["status"].get("used") or {}
    name = quota["metadata"]["name"]
    missing = _missing(obj["spec"], [one for one in _MANDATORY if one in hard])
    if missing:
        raise _refused(obj, f"failed quota: {name}: must specify {missing}")
    over = [
        one
        for one in sorted(usage.keys() & hard.keys())
        if usage[one] and nanos(used.get(one, "0")) + usage[one] > nanos(hard[one])
    ]
    if over:
        asked = _listed((one, format_nanos(usage[one], hard[one])) for one in over)
        taken = _listed((one, used.get(one, "0")) for one in over)
        limits = _listed((one, hard[one]) for one in over)
        raise _refused(obj, f"exceeded quota: {name}, requested: {asked}, used: {taken}, limited: {limits}")


def _listed(pairs: Iterable[tuple[str, str]]) -> str:
    return ",".join(f"{name}={amount}" for name, amount in pairs)


def _refused(obj: Json, text: str) -> ApiError:
    meta = obj["metadata"]
    return forbidden("pods", "", meta.get("name") or meta.get("generateName") or "", text)


def _missing(spec: Json, mandatory: list[str]) -> str:
    """A quota on a request or limit makes it mandatory for every container."""
    parts = []
    if spec.get("resources"):
        return ""
    for name in sorted(mandatory):
        part, _, resource = name.rpartition(".")
        part = part or "requests"
        lacking = sorted(
            {one["name"] for one in containers(spec) if resource not in ((one.get("resources") or {}).get(part) or {})}
        )
        if lacking:
            parts.append(f"{name} for: {','.join(lacking)}")
    return "; ".join(parts)


def _covers(quota: Json, spec: Json) -> bool:
    """Scopes narrow a quota to some pods; all of them must hold."""
    requirements = [{"scopeName": scope, "operator": "Exists"} for scope in quota.get("scopes") or ()]
    requirements += (quota.get("scopeSelector") or {}).get("matchExpressions") or []
    return all(_scope_holds(one, spec) for one in requirements)


def _scope_holds(one: Json, spec: Json) -> bool:
    scope: str = one.get("scopeName", "")
    if scope in ("BestEffort", "NotBestEffort"):
        return (qos_class(spec) == "BestEffort") is (scope == "BestEffort")
    if scope in ("Terminating", "NotTerminating"):
        return ("activeDeadlineSeconds" in spec) is (scope == "Terminating")
    if scope == "PriorityClass":
        name: str = spec.get("priorityClassName", "")
        operator: str = one.get("operator", "")
        if operator in ("In", "NotIn"):
            return (name in (one.get("values") or ())) is (operator == "In")
        return bool(name) is (operator == "Exists")
    return True
