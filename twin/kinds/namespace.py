"""Namespaces: their life cycle without a namespace controller, their protection.

Source: ``pkg/registry/core/namespace`` (strategy and storage: Delete, finalize), ``plugin/pkg/admission/namespace``. A
namespace goes in two steps: DELETE turns it Terminating, and it is gone when ``spec.finalizers`` is emptied through
``/finalize``. Emptying it of its objects is a controller's work.
"""

from __future__ import annotations

from typing import Any

from twin.kinds.rules.names import check, qualified_name
from twin.kinds.rules.printing import printed
from twin.kinds.rules.typed import TypedStrategy
from twin.registry.status import FieldError, forbidden, invalid
from twin.registry.strategy import NAME_LABEL, KindInfo, RequestContext, Subresource

Json = dict[str, Any]

_IMMORTAL = ("default", "kube-system", "kube-public")
_FINALIZER = "kubernetes"
_NAME_LABEL_KEY = "kubernetes.io/metadata.name"


class NamespaceStrategy(TypedStrategy):
    """Core v1 Namespace."""

    info = KindInfo(
        "", "v1", "Namespace", "namespaces", "namespace", False, short_names=("ns",),
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
    )  # fmt: skip
    go_type = "core/v1.Namespace"
    has_generation = False
    name_rule = NAME_LABEL
    supported_fields = frozenset(("metadata.name", "status.phase"))
    table = printed("Name", "Status=status.phase", "Age")

    def __init__(self) -> None:
        super().__init__()
        finalize = Subresource("finalize", ("update",), prepare=_keep_status, validate=_check_finalize)
        self.subresources = (*self.subresources, finalize)

    def default(self, obj: Json) -> None:
        name = obj["metadata"].get("name")
        if name:
            obj["metadata"]["labels"] = {**(obj["metadata"].get("labels") or {}), _NAME_LABEL_KEY: name}

    def prepare_for_create(self, obj: Json, ctx: RequestContext) -> None:
        self.default(obj)
        finalizers = obj["spec"].get("finalizers") or []
        if _FINALIZER not in finalizers:
            obj["spec"]["finalizers"] = [*finalizers, _FINALIZER]
        obj["status"] = {"phase": "Active"}

    def prepare_for_update(self, obj: Json, old: Json, ctx: RequestContext) -> None:
        obj["spec"] = old["spec"]

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        return _check_finalizers(obj)

    def validate_status_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        phase = obj["status"].get("phase")
        if old["metadata"].get("deletionTimestamp"):
            if phase != "Terminating":
                text = "may only be 'Terminating' if `deletionTimestamp` is not empty"
                return [invalid("status.Phase", phase or "", text)]
        elif phase != "Active":
            return [invalid("status.Phase", phase or "", "may only be 'Active' if `deletionTimestamp` is empty")]
        return []

    def admit_delete(self, obj: Json, ctx: RequestContext) -> None:
        name = obj["metadata"]["name"]
        if name in _IMMORTAL:
            raise forbidden("namespaces", "", name, "this namespace may not be deleted")

    def before_delete(self, obj: Json, ctx: RequestContext) -> Json | None:
        if obj["metadata"].get("deletionTimestamp"):
            return obj if obj["spec"].get("finalizers") else None
        return {
            **obj,
            "metadata": {**obj["metadata"], "deletionTimestamp": ctx.now},
            "status": {**obj["status"], "phase": "Terminating"},
        }

    def ready_to_delete(self, obj: Json) -> bool:
        return not obj["spec"].get("finalizers")

    def selectable_fields(self, obj: Json) -> dict[str, str]:
        return {"status.phase": obj["status"].get("phase", "")}


def _keep_status(obj: Json, old: Json, ctx: RequestContext) -> None:
    obj["status"] = old["status"]


def _check_finalize(obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
    return _check_finalizers(obj)


def _check_finalizers(obj: Json) -> list[FieldError]:
    found: list[FieldError] = []
    for index, name in enumerate(obj["spec"].get("finalizers") or ()):
        field = f"spec.finalizers[{index}]"
        found += check(field, name, qualified_name)
        if "/" not in name and name != _FINALIZER:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            found.append(invalid(field, name, text))
    return found
