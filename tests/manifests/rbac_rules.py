"""Roles and bindings as plain words: which service account may do which verb on which resource."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]


def words(verb: str, group: str, resource: str) -> str:
    """``patch pods/status``, ``list apps/replicasets``: one thing that may be done."""
    return f"{verb} {group}{'/' if group else ''}{resource}" if group else f"{verb} {resource}"


def grants(documents: Iterable[Json]) -> dict[str, set[str]]:
    """Service account to what it may do. Names that a rule is held to are behind it, in brackets; paths: none."""
    documents = list(documents)
    rules = {(d["kind"], d["metadata"]["name"]): d["rules"] for d in documents if d["kind"] in ("ClusterRole", "Role")}
    found: dict[str, set[str]] = {}
    for binding in documents:
        if binding["kind"] not in ("ClusterRoleBinding", "RoleBinding"):
            continue
        for subject in binding["subjects"]:
            assert subject["kind"] == "ServiceAccount", binding
            assert subject["namespace"] == "conclave-system", binding
            for rule in rules[binding["roleRef"]["kind"], binding["roleRef"]["name"]]:
                assert rule.keys() - {"resourceNames"} == {"apiGroups", "resources", "verbs"}, rule
                held_to = f" [{' '.join(rule['resourceNames'])}]" if "resourceNames" in rule else ""
                found.setdefault(subject["name"], set()).update(
                    words(verb, group, resource) + held_to
                    for verb in rule["verbs"]
                    for group in rule["apiGroups"]
                    for resource in rule["resources"]
                )
    return found


def mismatches(asked: dict[str, dict[str, bool]], granted: dict[str, set[str]], *, everybody: set[str]) -> list[str]:
    """What was asked and refused, asked without a rule, or granted and never asked; nothing when the Roles fit.

    ``asked``: service account to request and whether it was let through. ``everybody``: requests that need no rule.
    """
    found = []
    for account in sorted(asked.keys() | granted.keys()):
        requests, rules = asked.get(account, {}), granted.get(account, set())
        found += [f"{account}: refused: {what}" for what, passed in sorted(requests.items()) if not passed]
        found += [f"{account}: no rule for: {what}" for what in sorted(requests.keys() - rules - everybody)]
        found += [f"{account}: never used: {what}" for what in sorted(rules - requests.keys())]
    return found
