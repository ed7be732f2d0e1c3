"""What a user may do, by Roles and Bindings. Source: ``plugin/pkg/auth/authorizer/rbac``. Pure, over a Reader."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from twin.registry.strategy import StoreReader

Json = dict[str, Any]

_GROUP = "rbac.authorization.k8s.io"
_ACCOUNT = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class Attributes:
    """One thing somebody wants to do. ``path`` is set for what is no resource."""

    verb: str
    group: str = ""
    resource: str = ""
    """Plural, with ``/subresource`` where there is one."""
    namespace: str = ""
    name: str = ""
    path: str = ""


def allowed_by(reader: StoreReader, user: str, groups: Iterable[str], wanted: Attributes) -> str:
    """Why it is allowed, in the server's words; empty when nothing allows it."""
    belongs = frozenset(groups)
    for binding in reader.list(f"clusterrolebindings.{_GROUP}"):
        subject = _subject(binding, "", user, belongs)
        if subject and _rules_allow(_role(reader, binding, ""), wanted):
            return _reason("ClusterRoleBinding", binding, "", subject)
    if wanted.namespace:
        for binding in reader.list(f"rolebindings.{_GROUP}", wanted.namespace):
            subject = _subject(binding, wanted.namespace, user, belongs)
            if subject and _rules_allow(_role(reader, binding, wanted.namespace), wanted):
                return _reason("RoleBinding", binding, wanted.namespace, subject)
    return ""


def _reason(kind: str, binding: Json, namespace: str, subject: str) -> str:
    name = binding["metadata"]["name"]
    bound = f"{name}/{namespace}" if namespace else name
    ref = binding["roleRef"]
    return f'RBAC: allowed by {kind} "{bound}" of {ref["kind"]} "{ref["name"]}" to {subject}'


def _subject(binding: Json, namespace: str, user: str, groups: frozenset[str]) -> str:
    """The subject of a binding that this user is, as the reason names it."""
    for subject in binding.get("subjects") or ():
        kind, name = subject.get("kind"), subject.get("name", "")
        if kind == "User" and name == user:
            return f'User "{name}"'
        if kind == "Group" and name in groups:
            return f'Group "{name}"'
        if kind == "ServiceAccount":
            home = subject.get("namespace") or namespace
            if user == f"{_ACCOUNT}{home}:{name}":
                return f'ServiceAccount "{name}/{home}"'
    return ""


def _role(reader: StoreReader, binding: Json, namespace: str) -> list[Json]:
    ref = binding["roleRef"]
    if ref.get("kind") == "Role":
        role = reader.get(f"roles.{_GROUP}", namespace, ref["name"]) if namespace else None
    else:
        role = reader.get(f"clusterroles.{_GROUP}", "", ref["name"])
    return (role or {}).get("rules") or []


def _rules_allow(rules: list[Json], wanted: Attributes) -> bool:
    return any(_allows(rule, wanted) for rule in rules)


def _allows(rule: Json, wanted: Attributes) -> bool:
    verbs = rule.get("verbs") or ()
    if "*" not in verbs and wanted.verb not in verbs:
        return False
    if wanted.path:
        return any(_path_fits(one, wanted.path) for one in rule.get("nonResourceURLs") or ())
    groups = rule.get("apiGroups") or ()
    if "*" not in groups and wanted.group not in groups:
        return False
    if not any(_resource_fits(one, wanted.resource) for one in rule.get("resources") or ()):
        return False
    names = rule.get("resourceNames") or ()
    return not names or wanted.name in names


def _resource_fits(pattern: str, resource: str) -> bool:
    if pattern in ("*", resource):
        return True
    _, slash, subresource = resource.partition("/")
    return bool(slash) and pattern == f"*/{subresource}"


def _path_fits(pattern: str, path: str) -> bool:
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern[:-1]))
