"""Binding a pod: ``pods/NAME/binding`` and the old ``/bindings``.

Source: ``pkg/registry/core/pod/storage/storage.go`` (BindingREST, assignPod, setPodNodeAndMetadata),
``plugin/pkg/admission/podtopologylabels``. All checks happen
inside one atomic update, so of two bindings one wins. The change is copy-on-write: only metadata, spec and status of
the pod are new dictionaries, everything below that did not change is shared with the old pod.
"""

from __future__ import annotations

from typing import Any

from twin.kinds.rules.typed import decode_body, expect_kind, expect_namespace
from twin.registry.status import ApiError, bad_request, conflict, not_supported, plain_error, success
from twin.registry.strategy import HandlerResult, ObjectRegistry, RequestContext

Json = dict[str, Any]

_BINDING = (("v1", "Binding"),)
_TOPOLOGY = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
_TARGET_KINDS = ("Node", "<empty>")


def bind_pod(ctx: RequestContext, registry: ObjectRegistry, name: str, body: Json) -> HandlerResult:
    """POST pods/NAME/binding, and POST bindings with an empty ``name`` (then the body names the pod).

    Refused: 400 wrong kind, name or namespace; 404 no such pod; 409 a precondition failed, the pod is bound already,
    terminating or gated; 500 an invalid target, as the real server does.
    """
    expect_kind(body, _BINDING, "Binding", "core.Binding")
    body = decode_body("core/v1.Binding", "Binding", "v1", body, ctx)
    meta = body["metadata"]
    expect_namespace(body, ctx)
    given = meta.get("name", "")
    if name and given != name:
        raise bad_request("name in URL does not match name in Binding object")
    _check_target(body["target"])
    node = body["target"]["name"]
    pod_name = given
    if name and body["target"].get("kind") == "Node":
        meta = {**meta, "labels": {**(meta.get("labels") or {}), **topology_labels(ctx, node)}}

    def assign(old: Json) -> Json:
        _check_preconditions(meta, old, ctx.namespace)
        _check_bindable(old, pod_name)
        return bound(old, node, meta, ctx.now)

    registry.guaranteed_update(ctx, "pods", ctx.namespace, pod_name, assign, audit_verb="bind")
    return HandlerResult(201, success(code=201))


def bound(old: Json, node: str, meta: Json, now: str) -> Json:
    """The pod on ``node``: annotations and labels of the Binding merged, PodScheduled true, no nomination."""
    pod = dict(old)
    pod["spec"] = {**old["spec"], "nodeName": node}
    metadata = old["metadata"]
    for field in ("annotations", "labels"):
        if meta.get(field):
            if metadata is old["metadata"]:
                metadata = dict(metadata)
            metadata[field] = {**(metadata.get(field) or {}), **meta[field]}
    pod["metadata"] = metadata
    status = {key: value for key, value in old["status"].items() if key != "nominatedNodeName"}
    status["conditions"] = with_condition(
        status.get("conditions") or [], {"type": "PodScheduled", "status": "True"}, now
    )
    pod["status"] = status
    return pod


def topology_labels(ctx: RequestContext, node_name: str) -> Json:
    """Where the node is, as its pods are told: by a binding of the pod itself, and when they are created on it."""
    node = ctx.reader.get("nodes", "", node_name)
    labels = (node["metadata"].get("labels") or {}) if node is not None else {}
    return {key: labels[key] for key in _TOPOLOGY if key in labels}


def with_condition(conditions: list[Json], wanted: Json, now: str) -> list[Json]:
    """UpdatePodCondition: replace in place or append; the transition time moves only when the status does."""
    fresh = {
        "type": wanted["type"],
        "status": wanted["status"],
        "lastProbeTime": None,
        "lastTransitionTime": now,
        **{key: value for key, value in wanted.items() if key not in ("type", "status")},
    }
    for index, condition in enumerate(conditions):
        if condition["type"] == wanted["type"]:
            if condition["status"] == wanted["status"]:
                fresh["lastTransitionTime"] = condition.get("lastTransitionTime")
            return [*conditions[:index], fresh, *conditions[index + 1 :]]
    return [*conditions, fresh]


def _check_target(target: Json) -> None:
    problems = []
    kind = target.get("kind", "")
    if kind not in ("", "Node"):
        problems.append(f"target.kind: {not_supported('', kind, _TARGET_KINDS).message}")
    if not target.get("name"):
        problems.append("target.name: Required value")
    if problems:
        raise plain_error(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")


def _check_preconditions(meta: Json, old: Json, namespace: str) -> None:
    current = old["metadata"]
    for field, title in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        wanted = meta.get(field)
        if wanted and wanted != current.get(field):
            name = current["name"]
            raise conflict(
                "pods",
                "",
                name,
                f"StorageError: invalid object, Code: 4, Key: /registry/pods/{namespace}/{name}, ResourceVersion: 0, "
                f"AdditionalErrorMsg: Precondition failed: {title} in precondition: {wanted}, {title} in object meta: "
                f"{current.get(field)}",
            )


def _check_bindable(old: Json, name: str) -> None:
    if old["metadata"].get("deletionTimestamp"):
        raise _refused(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if node := old["spec"].get("nodeName"):
        raise _refused(name, f'pod {name} is already assigned to node "{node}"')
    if old["spec"].get("schedulingGates"):
        raise _refused(name, f"pod {name} has non-empty .spec.schedulingGates")


def _refused(name: str, message: str) -> ApiError:
    return conflict("pods/binding", "", name, message)
