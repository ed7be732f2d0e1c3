"""A file of profiles is read whole or refused in one line that names the field and the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from services.binder.settings import BinderSettings
from services.coordinator.settings import CoordinatorSettings
from shared.errors import ConfigError
from shared.model.scheduling_profile import FitScoring, SchedulingProfile, ShapePoint, SpreadDefault, Weighted
from shared.policy.registry import make_policy
from shared.runtime.process.plugins import profile_titles
from shared.runtime.process.profiles_file import parse_profiles, profiles_of
from shared.scheduling.profiles import Profiles
from shared.wire.codec import decode, encode
from shared.wire.messages import VERSION, ClassDefinition, Offer
from shared.wire.records import plugins_differ
from tests.builders import make_pod

Json = dict[str, Any]


def parsed(text: str) -> list[SchedulingProfile]:
    return parse_profiles(yaml.safe_load(text), "file", scores=("mine",), check_policy=make_policy)


def of(fields: str) -> SchedulingProfile:
    return parsed(f"profiles: [{{schedulerName: a, {fields}}}]")[0]


def test_what_a_profile_says_is_read() -> None:
    ratio = (
        "scoringStrategy: {type: RequestedToCapacityRatio, resources: [{name: cpu, weight: 2}, {name: e.com/x}],"
        " requestedToCapacityRatio: {shape: [{utilization: 0, score: 10}, {utilization: 100, score: 0}]}}"
    )
    found = of(
        "policy: kube-default, filters: {disabled: [TaintToleration, NodeUnschedulable]},"
        " scores: {ImageLocality: 0, TaintToleration: 3, mine: 4},"
        f" args: {{NodeResourcesFit: {{{ratio}, ignoredResources: [e.com/y], ignoredResourceGroups: [f.com]}},"
        " NodeResourcesBalancedAllocation: {resources: [{name: cpu}, {name: memory}, {name: e.com/x}]},"
        " PodTopologySpread: {defaultingType: List, defaultConstraints: [{maxSkew: 2, topologyKey: zone,"
        " whenUnsatisfiable: DoNotSchedule}]},"
        " InterPodAffinity: {hardPodAffinityWeight: 0, ignorePreferredTermsOfExistingPods: true}}"
    )
    assert found == SchedulingProfile(
        "a", "kube-default", ("NodeUnschedulable", "TaintToleration"), (("ImageLocality", 0), ("mine", 4)),
        FitScoring(
            "RequestedToCapacityRatio", (Weighted("cpu", 2), Weighted("e.com/x")),
            (ShapePoint(0, 100), ShapePoint(100, 0)),
        ),
        ("cpu", "memory", "e.com/x"), (SpreadDefault(2, "zone", hard=True),), 0, own_wishes_alone=True,
        ignored=("e.com/y", "f.com/*"),
    )  # fmt: skip
    pod_class = make_pod().pod().pod_class
    offer = Offer(VERSION, 1, 0, 1, 1, None, [], [ClassDefinition(1, type(pod_class)(profile=found))])
    assert decode(encode(offer), Offer) == offer


def test_what_is_as_by_default_is_no_difference() -> None:
    same = of(
        "scores: {NodeAffinity: 2}, args: {NodeResourcesFit: {scoringStrategy: {type: LeastAllocated, resources:"
        " [{name: cpu, weight: 1}, {name: memory, weight: 1}]}}, PodTopologySpread: {defaultingType: System},"
        " InterPodAffinity: {hardPodAffinityWeight: 1}, NodeResourcesBalancedAllocation: {}}"
    )
    assert same.plain


WRONG = {
    "": "must be fields with values: profiles",
    "profile: []": "profile: unknown field; there is profiles",
    "profiles: []": "profiles: has 0 entries; give 1 to 32",
    "profiles: [{schedulerName: a}, {schedulerName: a}]": r"\[1\]\.schedulerName: 'a' is there twice; rename one",
    "profiles: [{}]": r"profiles\[0\]\.schedulerName: None can be no pod's",
    "profiles: [{schedulerName: A_b}]": r"profiles\[0\]\.schedulerName: 'A_b' can be no pod's",
    "profiles: [{schedulerName: a, policies: x}]": r"profiles\[0\]\.policies: unknown field",
    "profiles: [{schedulerName: a, policy: magic}]": r"profiles\[0\]\.policy: policy: 'magic' is not known; choose",
    "profiles: [{schedulerName: a, policy: 3}]": r"profiles\[0\]\.policy: 3 is no policy's name",
    "profiles: [{schedulerName: a, filters: {disabled: [NodePorts]}}]": "NodePorts stays: nodes would be given",
    "profiles: [{schedulerName: a, filters: {disabled: [NodeAffinty]}}]": "no filter; did you mean NodeAffinity",
    "profiles: [{schedulerName: a, filters: {disabled: [[a]]}}]": r"disabled: \['a'\] is no filter's name",
    "profiles: [{schedulerName: a, scores: {Magic: 1}}]": r"profiles\[0\]\.scores: 'Magic' is no score; there is",
    "profiles: [{schedulerName: a, scores: {NodeAffinity: -1}}]": "scores.NodeAffinity: -1 must be a whole number",
    "profiles: [{schedulerName: a, scores: {NodeAffinity: 1}}]": "scores: count where kube-default decides; add policy",
    "profiles: [{schedulerName: a, policy: random, scores: {NodeAffinity: 1}}]": "count where kube-default decides",
    "profiles: [{schedulerName: a, args: {Magic: {}}}]": r"profiles\[0\]\.args: 'Magic' takes no arguments here",
}
ARGS = {
    "NodeResourcesFit: {scoringStrategy: {type: Best}}": r"scoringStrategy\.type: 'Best' is not known; write Least",
    "NodeResourcesFit: {scoringStrategy: {resources: [{name: cpu}, {name: cpu}]}}": "'cpu' is there twice",
    "NodeResourcesFit: {scoringStrategy: {resources: [{name: cpu, weight: 101}]}}": "101 must be a whole number from 1",
    "NodeResourcesFit: {scoringStrategy: {type: RequestedToCapacityRatio}}": "needs at least one point",
    "NodeResourcesFit: {ignoredResources: [cpu]}": "'cpu' is no extended resource of others",
    "NodeResourcesFit: {ignoredResourceGroups: [conclave.io]}": "is no group of others' resources",
    "NodeResourcesBalancedAllocation: {resources: [{name: cpu, weight: 2}]}": "must be 1: shares are compared",
    "PodTopologySpread: {defaultConstraints: [{}]}": "are for defaultingType: List",
    "PodTopologySpread: {defaultingType: List, defaultConstraints: [{topologyKey: z}]}": "Unsatisfiable: None is not",
    "InterPodAffinity: {hardPodAffinityWeight: 1.5}": "1.5 must be a whole number from 0 to 100",
    "NodeAffinity: {addedAffinity: {required: {}}}": "addedAffinity.required: unknown field",
}


ADDED = {
    "{required: {}}": "nodeSelectorTerms: is empty",
    "{required: {nodeSelectorTerms: []}}": "nodeSelectorTerms: is empty",
    "{required: {nodeSelectorTerms: [{}]}}": r"nodeSelectorTerms\[0\]: is empty",
    "{required: {nodeSelectorTerm: []}}": "nodeSelectorTerm: unknown field",
    "{required: {nodeSelectorTerms: [{matchExpresions: []}]}}": "matchExpresions: unknown field; there is matchExpr",
    "{required: {nodeSelectorTerms: [ONE]}, x: 1}": "addedAffinity.x: unknown field",
    "{required: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Equals}]}]}}": "'Equals' is not known",
    "{required: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: [In]}]}]}}": "is not known; write",
    "{required: {nodeSelectorTerms: [{matchExpressions: [{operator: Exists}]}]}}": "key: None must be a name",
    "{required: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In}]}]}}": "In needs at least one",
    "{required: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [1]}]}]}}": "1 must be text",
    "{required: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Gt, values: [x]}]}]}}": "one whole number",
    "{required: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists, values: [x]}]}]}}": "takes none",
    "{required: {nodeSelectorTerms: [{matchFields: [{key: a, operator: In, values: [x]}]}]}}": "must be metadata.name",
    "{preferred: [{weight: 0, preference: ONE}]}": "weight: 0 must be a whole number from 1 to 100",
    "{preferred: [{weight: -5, preference: ONE}]}": "weight: -5 must be a whole number from 1 to 100",
    f"{{preferred: [{{weight: {10**30}, preference: ONE}}]}}": "must be a whole number from 1 to 100",
    "{preferred: [{weight: 1}]}": r"preferred.*\[0\].preference: must be fields with values",
}


def added(text: str) -> str:
    for short in ("required", "preferred"):
        text = text.replace(short, f"{short}DuringSchedulingIgnoredDuringExecution")
    text = text.replace("ONE", "{matchExpressions: [{key: a, operator: In, values: [b]}]}")
    return f"args: {{NodeAffinity: {{addedAffinity: {text}}}}}"


@pytest.mark.parametrize("text", ADDED)
def test_affinity_that_no_pod_could_have_is_refused_when_it_is_read(text: str) -> None:
    with pytest.raises(ConfigError, match=ADDED[text]) as caught:
        of(added(text))
    assert "\n" not in str(caught.value)


def test_affinity_as_pods_have_it_is_taken() -> None:
    fields = "matchFields: [{key: metadata.name, operator: In, values: [n]}]"
    more = "{key: b, operator: Gt, values: ['-3']}, {key: c, operator: DoesNotExist}"
    term = f"{{matchExpressions: [{more}], {fields}}}"
    found = of(
        added(f"{{required: {{nodeSelectorTerms: [ONE, {term}]}}, preferred: [{{weight: 100, preference: ONE}}]}}")
    )
    assert found.added is not None
    assert [len(one.expressions) + len(one.fields) for one in found.added] == [1, 3]
    assert [wish.weight for wish in found.wishes] == [100]


@pytest.mark.parametrize("text", WRONG | {f"profiles: [{{schedulerName: a, args: {{{one}}}}}]": 1 for one in ARGS})
def test_a_wrong_field_is_one_line_with_its_remedy(text: str) -> None:
    says = WRONG.get(text) or next(said for one, said in ARGS.items() if one in text)
    with pytest.raises(ConfigError, match=says) as caught:
        parsed(text)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("file: ")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"a: [", "is not one YAML document"),
        (b"profiles: []\nprofiles: []", "line 2, column 1: 'profiles' is there twice; join them"),
        (b"profiles: [&a {schedulerName: a}, *a]", "column 35: an alias is not read here; write out what it is"),
        (b"\xff", "is not UTF-8"),
        (None, "cannot be read"),
        (b"x" * (1 << 21), "larger"),
    ],
    ids=["no yaml", "twice", "alias", "no text", "missing", "large"],
)
def test_a_file_that_cannot_be_read_keeps_a_service_from_starting(
    tmp_path: Path, data: bytes | None, says: str
) -> None:
    file = tmp_path / "profiles.yaml"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(ConfigError, match=f"profiles: {file}: .*{says}"):
        CoordinatorSettings(profiles=file)


def test_coordinator_and_binder_serve_the_same_names(tmp_path: Path) -> None:
    file = tmp_path / "profiles.yaml"
    file.write_text("profiles: [{schedulerName: a}, {schedulerName: b, policy: random}]")
    coordinator, binder = CoordinatorSettings(profiles=file).core(), BinderSettings(profiles=file).binder_core()
    assert coordinator.profiles == binder.profiles == profiles_of(file)
    assert binder.ours == {"conclave", "a", "b"}
    assert set(coordinator.profiles.special) == {"b"}
    assert coordinator.profiles.policies() == ["random"]


def test_a_process_with_another_file_than_the_leaders_is_told() -> None:
    first, other = (
        profile_titles(Profiles.of(parsed(f"profiles: [{{schedulerName: {name}, policy: random}}]"))) for name in "ab"
    )
    assert profile_titles(Profiles()) == ()
    assert plugins_differ("binder", first, first) == plugins_differ("jobs", (), first) == ""
    for service in ("agent", "binder", "coordinator"):
        assert f"has the plugins {other[0]}, the coordinator {first[0]}" in plugins_differ(service, other, first)
