"""Every verdict, score and allocation of the real kube-scheduler 1.36 for pods that claim devices: no exceptions.

The cases are not part of the repository (../shared/oracle-dra). Only ``id`` and ``input`` are shown to us; ``expect``
is compared afterwards. Tagged quirks are followed, since the questions are asked of that release.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.cli.explain.offline import answers
from shared.model.devices import nanos_of
from shared.scheduling.devices import dynamic_resources, inventory
from shared.scheduling.devices.search import allocator, constraints, counters, wanted
from shared.scheduling.explain import claims_whatif
from shared.scheduling.state.releases import Release

SHARED = Path(os.environ.get("CONCLAVE_SHARED", Path(__file__).parents[2].parent / "shared"))
CASES = SHARED / "oracle-dra" / "cases.jsonl"

pytestmark = pytest.mark.skipif(not CASES.exists(), reason=f"the oracle's cases of claims are not at {CASES}")

Pair = tuple[dict[str, Any], dict[str, Any]]


@pytest.fixture(scope="module")
def corpus() -> list[dict[str, Any]]:
    with CASES.open() as lines:
        return [json.loads(line) for line in lines]


def answered(cases: list[dict[str, Any]], release: Release = Release.V1_36) -> list[Pair]:
    questions = (json.dumps({"id": case["id"], "input": case["input"]}).encode() for case in cases)
    found = list(answers(questions, release))
    assert [one["id"] for one in found] == [case["id"] for case in cases]
    return list(zip(cases, found, strict=True))


@pytest.fixture(scope="module")
def pairs(corpus: list[dict[str, Any]]) -> list[Pair]:
    return answered(corpus)


def comparable(allocation: dict[str, Any]) -> dict[str, Any]:
    """Quantities by value, any share id as good as another, the selector's terms in any order."""
    results = []
    for result in allocation["devices"].get("results") or ():
        one = {key: value for key, value in result.items() if value not in (None, [], {})}
        if "shareID" in one:
            one["shareID"] = "*"
        if "consumedCapacity" in one:
            one["consumedCapacity"] = {name: nanos_of(str(q)) for name, q in one["consumedCapacity"].items()}
        results.append(one)
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    return {
        "claim": allocation["claim"],
        "results": results,
        "config": allocation["devices"].get("config") or [],
        "terms": sorted(json.dumps(term, sort_keys=True) for term in terms),
        "requests": allocation.get("requests") or [],
        "requestMappings": allocation.get("requestMappings") or [],
    }


def wrong(case: dict[str, Any], mine: dict[str, Any]) -> str:
    """The first part in which an answer is not kube-scheduler's; "" for none."""
    expected = case["expect"]
    for part, nothing in (("feasible", []), ("best", []), ("aborted", False)):
        if mine[part] != expected.get(part, nothing):
            return part
    if mine["infeasible"].keys() != expected["infeasible"].keys():
        return "infeasible"
    for name, theirs in expected["infeasible"].items():
        ours = mine["infeasible"][name]
        parts = ["plugin", "code"] + ([] if theirs["code"] == "Error" else ["reasons", "stage"])
        if any(ours.get(part) != theirs.get(part) for part in parts):
            return f"infeasible {name}"
    for name, theirs in expected.get("scores", {}).items():
        ours = {plugin: score for plugin, score in mine["scores"][name].items() if score}
        if ours != {plugin: score for plugin, score in theirs.items() if score}:
            return f"scores {name}"
    if mine["preEnqueue"] != expected.get("preEnqueue"):
        return "preEnqueue"
    theirs = {
        name: [comparable(one) for one in found] for name, found in expected.get("allocations", {}).items() if found
    }
    if {name: [comparable(one) for one in found] for name, found in mine["allocations"].items() if found} != theirs:
        return "allocations"
    after = expected.get("postFilter", {})
    freed = after.get("deallocatedAnyOf", [after.get("deallocated")])
    if mine["postFilter"].get("deallocated") not in freed or mine["postFilter"].get("deleted") != after.get("deleted"):
        return "postFilter"
    return ""


def test_every_case_is_answered_as_kube_scheduler_answers_it(pairs: list[Pair]) -> None:
    assert len(pairs) >= 306
    assert {part for case, _ in pairs for part in case.get("quirks", ())} >= {
        "counter-leak", "distinct-last-only", "reserved-256", "extended-empty-claim",
    }  # fmt: skip
    for case, mine in pairs:
        assert not wrong(case, mine), (case["id"], wrong(case, mine))


def test_by_the_newest_rules_only_what_was_mended_since_is_answered_otherwise(corpus: list[dict[str, Any]]) -> None:
    """Whatever differs is tagged as a quirk, or a pool that now fails ``All`` on its own node alone."""
    differing = {case["id"]: wrong(case, mine) for case, mine in answered(corpus, Release.V1_38) if wrong(case, mine)}
    tagged = {case["id"] for case in corpus if {"counter-leak", "distinct-last-only"} & set(case.get("quirks", ()))}
    updating = {
        case["id"]
        for case in corpus
        if any("currently being updated" in str(found["reasons"]) for found in case["expect"]["infeasible"].values())
    }
    assert tagged & differing.keys()
    assert differing.keys() <= tagged | updating, differing


ABLATIONS: dict[str, tuple[object, str, Callable[..., Any]]] = {
    "device-taints": (allocator, "barred", lambda device, tolerations: False),
    "constraints": (constraints._Match, "add", lambda self, *_: bool(self._common.append(frozenset()) or True)),
    "partitionable": (counters, "overdrawn", lambda free: False),
    "consumable": (wanted, "suffices", lambda device, wanted, *used: True),
    "binding-conditions": (dynamic_resources, "usable", lambda claim, now: True),
    "placement": (inventory, "in_order", lambda found: tuple(sorted(found, key=lambda pool: pool.id, reverse=True))),
    "deallocate": (dynamic_resources, "may_be_freed", lambda claim, uid: False),
    "prioritized": (claims_whatif, "normalised", lambda scores: [0 for _ in scores]),
    "missing": (dynamic_resources, "pod_claims", lambda pod, found: ()),
}
"""By stratum: what is switched off, and by what."""


@pytest.mark.parametrize("stratum", ABLATIONS)
def test_without_any_one_rule_the_oracle_disagrees(
    stratum: str, corpus: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*ABLATIONS[stratum])
    assert any(wrong(case, mine) for case, mine in answered([c for c in corpus if c["stratum"] == stratum]))
