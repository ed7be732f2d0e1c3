"""Who may do what on the API server, written down: a change of a Role must change this file too, and be read.

``tests/process/test_rbac_of_a_run.py`` holds the same rules against what a running mesh asks for.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from services.coordinator.io.cluster_lease import lease_name
from tests.manifests.rbac_rules import grants, mismatches
from tests.manifests.rendering import BUILDS, needs_kubectl, of_kind, pod_templates, rendered, role_of

pytestmark = needs_kubectl

GOLDEN = Path(__file__).with_name("rbac.golden.json")
LENDING = ("patch nodes/status", "list metrics.k8s.io/pods")
"""What the component ``lending`` adds, and nothing else does."""
PROFILES = tuple(f"{verb} coordination.k8s.io/leases [conclave.web conclave.batch]" for verb in ("get", "patch"))
"""The same of ``profiles``, by the names of its file."""


@pytest.mark.parametrize("build", BUILDS)
def test_roles_are_those_of_the_golden_file(build: str) -> None:
    golden = json.loads(GOLDEN.read_text())
    if not any(job["metadata"]["name"] == "conclave-make-peer-secret" for job in of_kind(build, "Job")):
        del golden["conclave-make-peer-secret"]
    if "autoscaler" not in build:
        del golden["conclave-autoscaler"]
    if "jobs" not in build:
        del golden["conclave-jobs"]
    if "rebalancer" not in build:
        del golden["conclave-rebalancer"]
    if "lending" not in build:
        for rule in LENDING:
            golden["conclave-coordinator"].remove(rule)
    if "profiles" not in build:
        for rule in PROFILES:
            golden["conclave-coordinator"].remove(rule)
    if "conclave-sensor" not in pod_templates(build):
        golden["conclave-coordinator"].remove("patch networking.k8s.io/networkpolicies [sensor-targets]")
    assert {account: sorted(rules) for account, rules in grants(rendered(build)).items()} == golden


@pytest.mark.parametrize("build", BUILDS)
def test_only_who_has_a_role_gets_a_token(build: str) -> None:
    accounts = {d["metadata"]["name"]: d for d in of_kind(build, "ServiceAccount")}
    assert all(account["automountServiceAccountToken"] is False for account in accounts.values())
    with_role = set(grants(rendered(build)))
    for name, template in pod_templates(build).items():
        spec, account = template["spec"], f"conclave-{role_of(name)}"
        assert spec["serviceAccountName"] == account
        assert account in accounts
        assert spec["automountServiceAccountToken"] is (account in with_role)


@pytest.mark.parametrize("build", BUILDS)
def test_agents_the_learner_and_etcd_have_no_permission(build: str) -> None:
    assert (
        not {"conclave-agent", "conclave-sensor", "conclave-learner", "conclave-etcd"} & grants(rendered(build)).keys()
    )


@pytest.mark.parametrize("build", BUILDS)
def test_only_the_binder_binds_evicts_and_deletes_and_jobs_delete_their_own(build: str) -> None:
    for account, rules in grants(rendered(build)).items():
        strong = {
            rule
            for rule in rules
            if rule.split()[0] == "delete" or rule.split()[-1] in ("pods/binding", "pods/eviction")
        }
        if account == "conclave-jobs":
            assert {rule.split()[0] for rule in strong} == {"delete"}
            assert {rule.split()[1].rpartition("/")[2] for rule in strong} == {"pods", "podgroups"}
        elif account == "conclave-coordinator":  # a claim that it judged (PostFilter), a reservation that is long over
            assert strong == {"delete resource.k8s.io/resourceclaims", "delete conclave.io/reservations"}
        elif account == "conclave-rebalancer":  # pods by the eviction API, where it has kept room; its own reservations
            assert strong == {"create pods/eviction", "delete conclave.io/reservations"}
        else:
            assert bool(strong) is (account == "conclave-binder")


@pytest.mark.parametrize("build", BUILDS)
def test_nobody_has_a_wildcard_reads_secrets_or_raises_itself(build: str) -> None:
    for rules in grants(rendered(build)).values():
        for rule in rules:
            verb, _, resource = rule.partition(" ")
            assert "*" not in rule
            assert verb not in ("impersonate", "escalate", "bind")
            assert "rbac.authorization" not in resource
            assert "secrets" not in resource or verb == "create"


def test_a_refused_request_a_missing_rule_and_an_unused_one_are_found() -> None:
    asked = {"a": {"list pods": True, "get /version": True}}
    assert mismatches(asked, {"a": {"list pods"}}, everybody={"get /version"}) == []
    refused = {"a": {"list pods": False}}
    assert mismatches(refused, {"a": {"list pods"}}, everybody=set()) == ["a: refused: list pods"]
    missing = {"a": {"list pods": True, "delete pods": True}}
    assert mismatches(missing, {"a": {"list pods"}}, everybody=set()) == ["a: no rule for: delete pods"]
    assert mismatches({}, {"a": {"list pods"}}, everybody=set()) == ["a: never used: list pods"]


def test_the_lease_that_may_be_changed_is_the_one_of_the_scheduler_name() -> None:
    for build in BUILDS:
        settings = {k: v for d in of_kind(build, "ConfigMap") for k, v in d.get("data", {}).items()}
        name = lease_name(settings["CONCLAVE_COORDINATOR_SCHEDULER_NAME"])
        rules = grants(rendered(build))["conclave-coordinator"]
        assert {rule for rule in rules if "leases" in rule} == {
            "create coordination.k8s.io/leases",
            f"get coordination.k8s.io/leases [{name}]",
            f"patch coordination.k8s.io/leases [{name}]",
            *(PROFILES if "profiles" in build else ()),
        }
