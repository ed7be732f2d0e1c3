"""Tokens and RBAC: who one is, what one may, and how a refusal reads."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.twin.twin_scene import Scene
from twin.api.requests.access import Access, token_warning
from twin.api.requests.paths import parse_path
from twin.registry.access.rbac import Attributes, allowed_by
from twin.registry.status import ApiError

RBAC = "rbac.authorization.k8s.io"
ACCOUNT = "system:serviceaccount:default:sa"


def granted(scene: Scene, *, cluster: bool = False, **rule: Any) -> None:
    role, binding = ("clusterroles", "clusterrolebindings") if cluster else ("roles", "rolebindings")
    scene.create(f"{role}.{RBAC}", "r", rules=[rule])
    kind = "ClusterRole" if cluster else "Role"
    subject = {"kind": "ServiceAccount", "name": "sa", "namespace": "default"}
    ref = {"apiGroup": RBAC, "kind": kind, "name": "r"}
    scene.create(f"{binding}.{RBAC}", "b", roleRef=ref, subjects=[subject])


def access(scene: Scene) -> Access:
    return Access("T", scene.registry, scene.registry.clock)


def issue(one: Access, token: str = "issued", seconds: int = 600) -> None:
    one.issue(
        "default",
        {"metadata": {"name": "sa", "uid": "u"}, "spec": {"expirationSeconds": seconds}, "status": {"token": token}},
    )


def test_only_the_given_token_is_the_administrator() -> None:
    one = access(Scene())
    assert one.caller("Bearer T").admin
    assert one.caller("").name == "system:anonymous"
    with pytest.raises(ApiError) as refused:
        one.caller("Bearer X")
    assert refused.value.code == 401


@pytest.mark.parametrize(
    "header", ["Basic Zm9vOmJhcg==", "Bearer", "Bearer ", "Bearer  T", "Token T", "T", "Digest x=y"]
)
def test_credentials_that_are_no_bearer_token_make_the_caller_anonymous(header: str) -> None:
    assert access(Scene()).caller(header).name == "system:anonymous"


@pytest.mark.parametrize("header", ["bearer T", "BEARER T", " Bearer T ", "Bearer T rest"])
def test_the_scheme_is_read_in_any_case_and_the_token_is_its_first_word(header: str) -> None:
    assert access(Scene()).caller(header).admin


def test_a_token_behind_two_spaces_is_warned_of() -> None:
    assert "extra space" in token_warning("Bearer  T")
    assert [token_warning(header) for header in ("Bearer T", "Bearer", "Basic  T", "")] == [""] * 4


def test_issued_token_is_known_until_it_expires() -> None:
    scene = Scene()
    one = access(scene)
    issue(one)
    assert one.caller("Bearer issued").name == ACCOUNT
    scene.now_s += 601
    with pytest.raises(ApiError) as refused:
        one.caller("Bearer issued")
    assert refused.value.code == 401


@pytest.mark.parametrize(
    ("method", "path", "text"),
    [
        ("GET", "/api/v1/pods", 'cannot list resource "pods" in API group "" at the cluster scope'),
        (
            "DELETE",
            "/api/v1/namespaces/n/pods",
            'cannot deletecollection resource "pods" in API group "" in the namespace',
        ),
        ("POST", "/api/v1/namespaces/n/pods/p/binding", 'cannot create resource "pods/binding"'),
        ("GET", "/metrics", 'cannot get path "/metrics"'),
        ("GET", "/readyz/ping", 'cannot get path "/readyz/ping"'),
        ("POST", "/version", 'cannot post path "/version"'),
        ("HEAD", "/version", 'cannot head path "/version"'),
        ("OPTIONS", "/api/v1/nodes", 'cannot  resource "nodes" in API group "" at the cluster scope'),
        ("GET", "/api", 'cannot get path "/api"'),
    ],
)
def test_refusals_name_user_verb_and_resource(method: str, path: str, text: str) -> None:
    one = access(Scene())
    with pytest.raises(ApiError) as refused:
        one.check(one.caller(""), method, path, parse_path(path), watch=False)
    assert refused.value.code == 403
    assert f'User "system:anonymous" {text}' in refused.value.body["message"]


@pytest.mark.parametrize("path", ["/healthz", "/version", "/version/"])
def test_health_and_version_are_open(path: str) -> None:
    one = access(Scene())
    one.check(one.caller(""), "GET", path, parse_path(path), watch=False)


@pytest.mark.parametrize("path", ["/api", "/apis", "/apis/apps", "/apis/apps/v1", "/openapi/v3/api/v1", "/version"])
def test_who_is_known_sees_discovery(path: str) -> None:
    one = access(Scene())
    issue(one)
    one.check(one.caller("Bearer issued"), "GET", path, parse_path(path), watch=False)
    with pytest.raises(ApiError):
        one.check(one.caller("Bearer issued"), "POST", path, parse_path(path), watch=False)


@pytest.mark.parametrize(
    ("rule", "wanted", "allowed"),
    [
        ({"verbs": ["list"]}, Attributes("list", "", "pods", "default"), True),
        ({"verbs": ["list"]}, Attributes("get", "", "pods", "default", "p"), False),
        ({"verbs": ["*"]}, Attributes("watch", "", "pods", "default"), True),
        ({"verbs": ["list"]}, Attributes("list", "", "pods", "other"), False),
        ({"verbs": ["list"]}, Attributes("list", "apps", "pods", "default"), False),
        ({"verbs": ["create"]}, Attributes("create", "", "pods/binding", "default", "p"), False),
        ({"verbs": ["create"], "resources": ["*/binding"]}, Attributes("create", "", "pods/binding", "default"), True),
        ({"verbs": ["get"], "resourceNames": ["a"]}, Attributes("get", "", "pods", "default", "b"), False),
        ({"verbs": ["get"], "resourceNames": ["a"]}, Attributes("get", "", "pods", "default", "a"), True),
    ],
)
def test_role_rules(rule: dict[str, Any], wanted: Attributes, allowed: bool) -> None:
    scene = Scene()
    granted(scene, **{"apiGroups": [""], "resources": ["pods"], **rule})
    assert bool(allowed_by(scene.registry, ACCOUNT, (), wanted)) is allowed


def test_cluster_role_covers_every_namespace_and_says_why() -> None:
    scene = Scene()
    granted(scene, cluster=True, apiGroups=["*"], resources=["*"], verbs=["get"])
    reason = allowed_by(scene.registry, ACCOUNT, (), Attributes("get", "apps", "deployments", "any", "d"))
    assert reason == 'RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to ServiceAccount "sa/default"'


def test_without_its_binding_the_account_is_refused() -> None:
    """Ablation: the rule, not the existence of a role, opens the door."""
    scene = Scene()
    granted(scene, apiGroups=[""], resources=["pods"], verbs=["list"])
    scene.delete(f"rolebindings.{RBAC}", "b")
    assert allowed_by(scene.registry, ACCOUNT, (), Attributes("list", "", "pods", "default")) == ""
