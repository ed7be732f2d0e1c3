"""LimitRange: its defaults and validation, and the LimitRanger admission of pods.

Sources: ``pkg/apis/core/v1/defaults.go`` (SetDefaults_LimitRangeItem), ``pkg/apis/core/validation`` and
``plugin/pkg/admission/limitranger``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twin.kinds.pod.resources import pod_requests
from twin.kinds.rules.quantity import format_nanos, nanos
from twin.kinds.rules.resources import check_resource_name
from twin.kinds.rules.typed import TypedStrategy
from twin.registry.status import FieldError, duplicate, forbidden, forbidden_field, invalid
from twin.registry.strategy import KindInfo, RequestContext

Json = dict[str, Any]

_ANNOTATION = "kubernetes.io/limit-ranger"


class LimitRangeStrategy(TypedStrategy):
    """Core v1 LimitRange."""

    info = KindInfo("", "v1", "LimitRange", "limitranges", "limitrange", True, short_names=("limits",))
    go_type = "core/v1.LimitRange"
    allow_create_on_update = True
    has_generation = False
    resets_status = False

    def default(self, obj: Json) -> None:
        for item in obj["spec"].get("limits") or ():
            if item.get("type") != "Container":
                continue
            defaults = {**(item.get("max") or {}), **(item.get("default") or {})}
            requests = {**(item.get("min") or {}), **defaults, **(item.get("defaultRequest") or {})}
            if defaults:
                item["default"] = defaults
            if requests:
                item["defaultRequest"] = requests

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        found: list[FieldError] = []
        seen: set[str] = set()
        for index, item in enumerate(obj["spec"].get("limits") or ()):
            here, kind = f"spec.limits[{index}]", item.get("type", "")
            if kind in seen:
                found.append(duplicate(f"{here}.type", kind))
            seen.add(kind)
            found += _check_item(item, here)
        return found


def _check_item(item: Json, field: str) -> list[FieldError]:
    found: list[FieldError] = []
    if item.get("type") == "Pod":
        found += [
            forbidden_field(f"{field}.{part}", "may not be specified when `type` is 'Pod'")
            for part in ("default", "defaultRequest")
            if item.get(part)
        ]
    parts = ("min", "max", "default", "defaultRequest", "maxLimitRequestRatio")
    names = sorted({name for part in parts for name in item.get(part) or ()})
    order = (
        ("min", "max", "min value {0} is greater than max value {1}"),
        ("defaultRequest", "default", "default request value {0} is greater than default limit value {1}"),
        ("min", "defaultRequest", "min value {0} is greater than default request value {1}"),
        ("min", "default", "min value {0} is greater than default value {1}"),
        ("defaultRequest", "max", "default request value {0} is greater than max value {1}"),
        ("default", "max", "default value {0} is greater than max value {1}"),
    )
    for name in names:
        for part in parts:
            if name in (item.get(part) or {}):
                found += check_resource_name(name, f"{field}.{part}[{name}]")
        for low, high, text in order:
            small, large = (item.get(low) or {}).get(name), (item.get(high) or {}).get(name)
            if small is not None and large is not None and nanos(small) > nanos(large):
                where = "default" if (low, high) == ("default", "max") else low
                found.append(invalid(f"{field}.{where}[{name}]", small, text.format(small, large)))
    return found


def admit_limits(obj: Json, ctx: RequestContext) -> None:
    """Fill in defaults of every LimitRange of the namespace, then refuse what breaks one."""
    ranges = list(ctx.reader.list("limitranges", ctx.namespace))
    if not ranges:
        return
    for one in ranges:
        _fill_in(obj, one)
    problems = [text for one in ranges for text in _problems(obj["spec"], one)]
    if problems:
        meta = obj["metadata"]
        text = problems[0] if len(problems) == 1 else "[" + ", ".join(problems) + "]"
        raise forbidden("pods", "", meta.get("name") or meta.get("generateName") or "", text)


def _fill_in(obj: Json, limit_range: Json) -> None:
    defaults = [item for item in limit_range["spec"].get("limits") or () if item.get("type") == "Container"]
    changes: list[str] = []
    for kind, word in (("containers", "container"), ("initContainers", "init container")):
        for container in obj["spec"].get(kind) or ():
            for part, source in (("requests", "defaultRequest"), ("limits", "default")):
                added = _merge(
                    container, part, {k: v for item in defaults for k, v in (item.get(source) or {}).items()}
                )
                if added:
                    changes.append(f"{', '.join(sorted(added))} {part[:-1]} for {word} {container['name']}")
    if changes:
        annotations = dict(obj["metadata"].get("annotations") or {})
        annotations[_ANNOTATION] = "LimitRanger plugin set: " + "; ".join(changes)
        obj["metadata"]["annotations"] = annotations


def _merge(container: Json, part: str, defaults: Json) -> list[str]:
    given = container["resources"].get(part) or {}
    added = [name for name in defaults if name not in given]
    if added:
        container["resources"][part] = {**defaults, **given}
    return added


def _problems(spec: Json, limit_range: Json) -> Iterator[str]:
    for item in limit_range["spec"].get("limits") or ():
        if item.get("type") == "Container":
            for kind in ("containers", "initContainers"):
                for container in spec.get(kind) or ():
                    resources = container.get("resources") or {}
                    yield from _broken(item, resources.get("requests") or {}, resources.get("limits") or {})
        elif item.get("type") == "Pod":
            plain = {k: v for k, v in spec.items() if k != "overhead"}
            requests = {name: format_nanos(amount) for name, amount in pod_requests(plain).items()}
            limits = {name: format_nanos(amount) for name, amount in pod_requests(plain, "limits").items()}
            yield from _broken(item, requests, limits)


def _broken(item: Json, requests: Json, limits: Json) -> Iterator[str]:
    kind = item["type"]
    for name, bound in sorted((item.get("min") or {}).items()):
        request, limit = requests.get(name), limits.get(name)
        if request is None:
            yield f"minimum {name} usage per {kind} is {bound}.  No request is specified"
        elif nanos(request) < nanos(bound):
            yield f"minimum {name} usage per {kind} is {bound}, but request is {request}"
        elif limit is not None and nanos(limit) < nanos(bound):
            yield f"minimum {name} usage per {kind} is {bound}, but limit is {limit}"
    for name, bound in sorted((item.get("max") or {}).items()):
        request, limit = requests.get(name), limits.get(name)
        if limit is None:
            yield f"maximum {name} usage per {kind} is {bound}.  No limit is specified"
        elif nanos(limit) > nanos(bound):
            yield f"maximum {name} usage per {kind} is {bound}, but limit is {limit}"
        elif request is not None and nanos(request) > nanos(bound):
            yield f"maximum {name} usage per {kind} is {bound}, but request is {request}"
    for name, ratio in sorted((item.get("maxLimitRequestRatio") or {}).items()):
        request, limit = requests.get(name), limits.get(name)
        if not request or not limit or not nanos(request) or not nanos(limit):
            text = "but no request is specified or request is 0"
            yield f"{name} max limit to request ratio per {kind} is {ratio}, {text}"
        elif nanos(limit) * 10**9 > nanos(ratio) * nanos(request):
            real = nanos(limit) / nanos(request)
            yield f"{name} max limit to request ratio per {kind} is {ratio}, but provided ratio is {real:f}"
