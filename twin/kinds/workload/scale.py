"""The scale subresource of workloads: ``autoscaling/v1`` Scale over ``spec.replicas``.

Source: ``pkg/registry/apps/*/storage`` (ScaleREST). The workload's resourceVersion is the Scale's, so that concurrent
writers of either find each other.
"""

from __future__ import annotations

from typing import Any

from twin.kinds.rules.names import selector_text
from twin.kinds.rules.typed import STATUS_VERBS, decode_body, expect_kind
from twin.registry.status import (
    MODIFIED_MESSAGE,
    bad_request,
    conflict,
    invalid,
    not_found,
    unprocessable,
)
from twin.registry.strategy import HandlerResult, KindInfo, ObjectRegistry, RequestContext, Subresource

Json = dict[str, Any]

_SCALE = (("autoscaling/v1", "Scale"),)
_META = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_subresource(info: KindInfo) -> Subresource:
    """``scale`` of a kind with spec.replicas, spec.selector and status.replicas."""

    def get(ctx: RequestContext, registry: ObjectRegistry, name: str, body: Json) -> HandlerResult:
        return HandlerResult(200, _scale(existing(ctx, registry, info, name)))

    def update(ctx: RequestContext, registry: ObjectRegistry, name: str, body: Json) -> HandlerResult:
        old = existing(ctx, registry, info, name)
        expect_kind(body, _SCALE, "Scale", "autoscaling.Scale")
        body = decode_body("autoscaling/v1.Scale", "Scale", "v1", body, ctx)
        meta = body["metadata"]
        replicas = body["spec"].get("replicas", 0)
        if meta.get("name", name) != name:
            text = f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
            raise bad_request(text)
        if replicas < 0:
            error = invalid("spec.replicas", replicas, "must be greater than or equal to 0")
            raise unprocessable("Scale", "autoscaling", name, [error])
        for field in ("resourceVersion", "uid"):
            if meta.get(field) and meta[field] != old["metadata"][field]:
                raise conflict(info.plural, info.group, name, MODIFIED_MESSAGE)
        new = registry.guaranteed_update(
            ctx, info.resource, ctx.namespace, name, lambda obj: scaled(obj, replicas), audit_verb=ctx.verb
        )
        if ctx.dry_run:
            return HandlerResult(200, _scale(new))
        return HandlerResult(200, _scale(existing(ctx, registry, info, name)))

    return Subresource("scale", STATUS_VERBS, kind="Scale", group="autoscaling", version="v1", get=get, update=update)


def existing(ctx: RequestContext, registry: ObjectRegistry, info: KindInfo, name: str) -> Json:
    """The object that is scaled. Refused: 404."""
    obj = registry.get(info.resource, ctx.namespace, name)
    if obj is None:
        raise not_found(info.plural, info.group, name)
    return obj


def scale_of(obj: Json, spec: Json, status: Json) -> Json:
    """The Scale that shows an object."""
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: obj["metadata"][key] for key in _META if key in obj["metadata"]},
        "spec": spec,
        "status": status,
    }


def scaled(obj: Json, replicas: int) -> Json:
    """The workload with another number of replicas, and the next generation."""
    if obj["spec"].get("replicas") == replicas:
        return obj
    generation = obj["metadata"].get("generation", 0) + 1
    return {
        **obj,
        "metadata": {**obj["metadata"], "generation": generation},
        "spec": {**obj["spec"], "replicas": replicas},
    }


def _scale(obj: Json) -> Json:
    spec, status = obj["spec"], obj.get("status") or {}
    replicas = spec.get("replicas", 0)
    selector = spec.get("selector")
    # a ReplicationController's selector is a plain map
    text = selector_text(selector if _is_selector(selector) else {"matchLabels": selector or {}})
    shown: Json = {"replicas": status.get("replicas", 0)}
    if text:
        shown["selector"] = text
    return scale_of(obj, {"replicas": replicas} if replicas else {}, shown)


def _is_selector(selector: Json | None) -> bool:
    return bool(selector) and all(not isinstance(value, str) for value in (selector or {}).values())
