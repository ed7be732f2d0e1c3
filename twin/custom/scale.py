"""The scale subresource of a custom resource: autoscaling/v1 Scale over three JSON paths.

Source: apiextensions ``pkg/registry/customresource/etcd.go`` (ScaleREST).
"""

from __future__ import annotations

import copy
from typing import Any

from twin.custom import json_path
from twin.kinds.rules.typed import decode_body
from twin.kinds.workload.scale import existing, scale_of
from twin.registry.status import internal
from twin.registry.strategy import HandlerResult, KindInfo, ObjectRegistry, RequestContext, Subresource

Json = dict[str, Any]


def scale_subresource(info: KindInfo, paths: Json) -> Subresource:
    """GET, PUT and PATCH of ``scale``."""

    def get(ctx: RequestContext, registry: ObjectRegistry, name: str, body: Json) -> HandlerResult:
        del body
        return HandlerResult(200, _scale_of(existing(ctx, registry, info, name), paths))

    def update(ctx: RequestContext, registry: ObjectRegistry, name: str, body: Json) -> HandlerResult:
        body = decode_body("autoscaling/v1.Scale", "Scale", "v1", body, ctx)
        obj = copy.deepcopy(existing(ctx, registry, info, name))
        sent = body.get("metadata") or {}
        if sent.get("resourceVersion"):
            obj["metadata"]["resourceVersion"] = sent["resourceVersion"]
        if sent.get("uid"):
            obj["metadata"]["uid"] = sent["uid"]
        _put(obj, paths["specReplicasPath"], (body.get("spec") or {}).get("replicas", 0))
        ctx.verb = "update"
        updated = registry.update(ctx, info.resource, ctx.namespace, name, obj)
        return HandlerResult(200, _scale_of(updated, paths))

    return Subresource("scale", ("get", "patch", "update"), "Scale", "autoscaling", "v1", get=get, update=update)


def _put(obj: Json, path: str, value: Any) -> None:
    *parents, last = [part for part in path.split(".") if part]
    for part in parents:
        obj = obj.setdefault(part, {})
    obj[last] = value


def _scale_of(obj: Json, paths: Json) -> Json:
    replicas = json_path.find(obj, paths["specReplicasPath"])
    if replicas is None:
        raise internal(f'the spec replicas field "{paths["specReplicasPath"]}" does not exist')
    status: Json = {"replicas": json_path.find(obj, paths["statusReplicasPath"]) or 0}
    selector = json_path.find(obj, paths["labelSelectorPath"]) if paths.get("labelSelectorPath") else None
    if selector:
        status["selector"] = selector
    return scale_of(obj, {"replicas": replicas}, status)
