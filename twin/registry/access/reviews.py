"""Reviews: who am I, may I. Kinds that are asked by POST and never stored.

The administrator may do everything, everybody else what RBAC objects allow.
"""

from __future__ import annotations

from twin.registry.access.rbac import Attributes, allowed_by
from twin.registry.status import Json
from twin.registry.strategy import HandlerResult, KindInfo, KindStrategy, ObjectRegistry, RequestContext

_ADMIN_GROUP = "system:masters"


def _review(kind: str, group: str, plural: str, *, namespaced: bool = False) -> KindInfo:
    return KindInfo(
        group=group,
        version="v1",
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        namespaced=namespaced,
        verbs=("create",),
    )


def _answer(ctx: RequestContext, spec: Json, status: Json) -> HandlerResult:
    body: Json = {"kind": ctx.info.kind, "apiVersion": ctx.info.api_version, "metadata": {}, "spec": spec}
    body["status"] = status
    return HandlerResult(201, body)


def who_am_i(ctx: RequestContext, registry: ObjectRegistry, name: str, body: Json) -> HandlerResult:
    """SelfSubjectReview."""
    del registry, name, body
    info: Json = {"username": ctx.user}
    if ctx.user_uid:
        info["uid"] = ctx.user_uid
    info["groups"] = list(ctx.groups)
    review: Json = {
        "kind": ctx.info.kind,
        "apiVersion": ctx.info.api_version,
        "metadata": {"creationTimestamp": ctx.now},
        "status": {"userInfo": info},
    }
    return HandlerResult(201, review)


def may_i(ctx: RequestContext, registry: ObjectRegistry, name: str, body: Json) -> HandlerResult:
    """SelfSubjectAccessReview, LocalSubjectAccessReview and SubjectAccessReview."""
    del registry, name
    spec = body.get("spec") or {}
    asked_for_another = "user" in spec or "groups" in spec
    user = spec.get("user", "") if asked_for_another else ctx.user
    groups = spec.get("groups") or () if asked_for_another else ctx.groups
    if _ADMIN_GROUP in groups or user == "system:admin":
        return _answer(ctx, spec, {"allowed": True})
    reason = allowed_by(ctx.reader, user, groups, _wanted(spec))
    return _answer(ctx, spec, {"allowed": True, "reason": reason} if reason else {"allowed": False})


def _wanted(spec: Json) -> Attributes:
    resource = spec.get("resourceAttributes")
    if resource is None:
        plain = spec.get("nonResourceAttributes") or {}
        return Attributes(plain.get("verb", ""), path=plain.get("path", ""))
    plural = resource.get("resource", "")
    if resource.get("subresource"):
        plural = f"{plural}/{resource['subresource']}"
    return Attributes(
        resource.get("verb", ""),
        resource.get("group", ""),
        plural,
        resource.get("namespace", ""),
        resource.get("name", ""),
    )


def my_rules(ctx: RequestContext, registry: ObjectRegistry, name: str, body: Json) -> HandlerResult:
    """SelfSubjectRulesReview."""
    del registry, name
    everything = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}] if _ADMIN_GROUP in ctx.groups else []
    rules: Json = {"resourceRules": everything, "nonResourceRules": [], "incomplete": False}
    return _answer(ctx, body.get("spec") or {}, rules)


class _Review(KindStrategy):
    """A kind that is a question."""

    def __init__(self, info: KindInfo) -> None:
        self.info = info
        answers = {"selfsubjectreviews": who_am_i, "selfsubjectrulesreviews": my_rules}
        self.collection_create = answers.get(info.plural, may_i)


def review_strategies() -> list[KindStrategy]:
    """The review kinds that clients ask."""
    authorization = "authorization.k8s.io"
    return [
        _Review(_review("SelfSubjectReview", "authentication.k8s.io", "selfsubjectreviews")),
        _Review(_review("LocalSubjectAccessReview", authorization, "localsubjectaccessreviews", namespaced=True)),
        _Review(_review("SelfSubjectAccessReview", authorization, "selfsubjectaccessreviews")),
        _Review(_review("SelfSubjectRulesReview", authorization, "selfsubjectrulesreviews")),
        _Review(_review("SubjectAccessReview", authorization, "subjectaccessreviews")),
    ]
