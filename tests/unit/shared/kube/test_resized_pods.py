"""What pods count while they are resized in place: 104 pods, with what kube-scheduler 1.36.2 itself answered for each.

``requests`` are what it counts on the node (cpu in thousandths), ``score`` cpu and memory as its scores count them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab.audit.rules import pod_facts
from shared.kube import objects as api
from shared.kube.contents import pod_content
from shared.kube.pods.convert import pod_from_api
from shared.kube.pods.convert_requests import effective_requests, score_requests
from tests.builders import make_pod

Json = dict[str, Any]

CASES: list[Json] = json.loads((Path(__file__).parent / "data" / "resized_pods.json").read_text(encoding="utf-8"))

CPU_OF = {"lowered": 3000, "infeasible": 1000, "deferred": 5000, "raised": 3000}


def named(case: Json) -> str:
    return str(case["pod"]["metadata"]["name"])


def above_0(amounts: Json) -> Json:
    return {name: amount for name, amount in amounts.items() if amount}


@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_pod_counts_what_kube_scheduler_counts(case: Json) -> None:
    pod = msgspec.convert(case["pod"], api.KubePod)
    requests = effective_requests(pod)
    assert above_0(requests) == above_0(case["requests"])
    assert list(score_requests(pod, requests, bound=True)) == case["score"]


@pytest.mark.parametrize("case", CASES, ids=named)
def test_the_audit_counts_it_by_itself(case: Json) -> None:
    assert pod_facts(case["pod"]).requests == above_0(case["requests"])


def test_the_cases_hold_what_the_field_names() -> None:
    """A lowered pod keeps what it has; a resize that cannot be claims nothing."""
    assert {named(case): case["requests"]["cpu"] for case in CASES if named(case) in CPU_OF} == CPU_OF


@pytest.mark.parametrize("field", ["resources", "allocatedResources"])
def test_a_pod_level_status_that_changes_is_a_change(field: str) -> None:
    builder = make_pod().cpu("1").on("n1")
    builder.json["spec"]["resources"] = {"requests": {"cpu": "1"}}
    builder.json["status"] = {"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"}}
    before = builder.api()
    more = {"requests": {"cpu": "3"}} if field == "resources" else {"cpu": "3"}
    builder.json["status"] = {**builder.json["status"], field: more}
    assert pod_content(builder.api()) != pod_content(before)
    assert dict(pod_from_api(before).pod_class.requests)["cpu"] == 1000
    assert dict(pod_from_api(builder.api()).pod_class.requests)["cpu"] == 3000


def test_a_pod_on_no_node_asks_for_its_spec() -> None:
    builder = make_pod().cpu("2")
    name = builder.json["spec"]["containers"][0]["name"]
    builder.json["status"] = {"containerStatuses": [{"name": name, "resources": {"requests": {"cpu": "9"}}}]}
    assert effective_requests(builder.api()) == {"cpu": 2000}
    assert pod_facts(builder.json).requests == {"cpu": 2000}
