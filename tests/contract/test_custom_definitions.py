"""Definitions of custom resources: the twin says to each what a real API server said (``tests/definitions``)."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

import pytest

from tests.definitions.cases import CASES, verdict, verdicts
from twin.bootstrap import make_registry
from twin.registry import creating
from twin.registry.registry import TwinRegistry
from twin.registry.status import ApiError

Json = dict[str, Any]

VERDICTS = verdicts()
LOOSER = {
    # the evaluator's compiler has no type for a list of lists in an object: what is in it, it sees at the write
    "rules/rule-matrix-wrong",
}


@pytest.fixture(scope="module")
def registry() -> TwinRegistry:
    return make_registry(clock=lambda: 1_795_000_000.0, rng=Random(7))


def said(registry: TwinRegistry, definition: Json) -> Json:
    kind = registry.kind("customresourcedefinitions.apiextensions.k8s.io")
    ctx = registry.context("create", kind, "", dry_run=True)
    try:
        creating.create(registry, ctx, kind, copy.deepcopy(definition))
    except ApiError as error:
        return verdict(error.code, error.body)
    return {"code": 201}


def places(answer: Json) -> list[tuple[str, str]]:
    return sorted((field, reason) for field, reason, _ in answer.get("causes", ()))


def test_every_definition_has_its_verdict() -> None:
    assert VERDICTS.keys() == CASES.keys()
    refused = sum(one["code"] >= 400 for one in VERDICTS.values())
    assert 0.3 < refused / len(VERDICTS) < 0.8


@pytest.mark.parametrize("name", CASES)
def test_the_twin_says_of_a_definition_what_a_real_server_says(name: str, registry: TwinRegistry) -> None:
    answer, wanted = said(registry, CASES[name]), VERDICTS[name]
    texts = [message for *_, message in answer.get("causes", ())]
    if any("not evaluated by this server" in text for text in texts):
        # it says so itself: a function of Kubernetes that no rule may use here
        assert answer["code"] == 422
        return
    if name in LOOSER:
        assert (wanted["code"], answer["code"]) == (422, 201)
        return
    assert answer["code"] == wanted["code"]
    assert places(answer) == places(wanted)
    if wanted["code"] == 400:
        assert answer["message"] == wanted["message"]


def test_what_the_twin_does_not_evaluate_is_little(registry: TwinRegistry) -> None:
    refused = [name for name, one in CASES.items() if "not evaluated by this server" in str(said(registry, one))]
    assert len(refused) <= 40
    assert all(name.startswith(("rules/rule-", "rules/cost-", "defaults/")) for name in refused)
