"""Relations of a pod as the API stores them: what selects whom, and what leaves a plain pod plain."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.errors import ObjectError
from shared.kube import objects as api
from shared.kube.cluster_objects import (
    ByLabels,
    BySelector,
    KubePersistentVolume,
    PersistentVolumeClaim,
    claim_from_api,
    volume_from_api,
    workload_from_api,
)
from shared.kube.pods.convert import pod_from_api
from shared.kube.pods.convert_relations import normalised_image, relations_of, selector_from_api
from shared.model.constraints import Requirement
from shared.model.terms.labels import LabelSelector, selector_of_labels
from shared.model.terms.relations import AffinityTerm, ClaimUse, SpreadConstraint, WeightedTerm
from tests.builders import make_pod

TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
SELECTOR = selector_of_labels({"app": "x"})


def pod(**spec: Any) -> api.KubePod:
    meta = {"name": "p", "namespace": "ns", "labels": {"app": "x", "hash": "1"}}
    return msgspec.convert({"metadata": meta, "spec": spec}, api.KubePod)


def test_a_plain_pod_has_no_relations_and_its_class_knows_nothing_of_them() -> None:
    token = {"name": "token", "projected": {"sources": []}}
    assert relations_of(pod(volumes=[token, {"name": "e", "emptyDir": {}}], affinity={"podAffinity": {}})) is None
    related = make_pod("a").cpu("1")
    related.json["spec"]["affinity"] = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]},
    }
    assert related.pod().relations is not None
    assert related.pod().pod_class == make_pod("b").cpu("1").pod().pod_class


def test_terms_mean_the_pods_own_namespace_unless_they_name_others() -> None:
    required = [TERM, TERM | {"namespaces": ["b", "a", "b"]}, TERM | {"namespaceSelector": {}}]
    preferred = [{"weight": 7, "podAffinityTerm": TERM}]
    both = {
        "requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    }
    found = relations_of(pod(affinity={"podAffinity": both, "podAntiAffinity": both}))
    assert found is not None
    own = AffinityTerm("zone", SELECTOR, ("ns",))
    assert found.affinity == found.anti_affinity == (
        own, AffinityTerm("zone", SELECTOR, ("a", "b")), AffinityTerm("zone", SELECTOR, (), LabelSelector()),
    )  # fmt: skip
    assert found.preferences == (WeightedTerm(7, own), WeightedTerm(-7, own))


def test_match_label_keys_of_spread_are_merged_once_or_twice_alike() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "matchLabelKeys": ["hash", "no"],
    }
    merged = {"matchLabels": {"app": "x"}, "matchExpressions": [{"key": "hash", "operator": "In", "values": ["1"]}]}
    expected = SpreadConstraint(1, "zone", hard=True, selector=selector_of_labels({"app": "x", "hash": "1"}))
    for selector in ({"matchLabels": {"app": "x"}}, merged):
        found = relations_of(pod(topologySpreadConstraints=[constraint | {"labelSelector": selector}]))
        assert found is not None
        assert found.spread == (expected,)
    absent = relations_of(pod(topologySpreadConstraints=[constraint]))
    assert absent is not None
    assert absent.spread[0].selector is None, "no selector matches nothing, whatever the keys"


def test_claims_are_those_of_the_pod_and_those_made_for_it() -> None:
    volumes = [{"name": "a", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "b", "ephemeral": {}}]
    found = relations_of(pod(volumes=volumes))
    assert found is not None
    assert found.claims == (ClaimUse("c"), ClaimUse("p-b", ephemeral=True))


def test_an_operator_that_selectors_do_not_have_spoils_its_pod_only() -> None:
    wrong = {"matchExpressions": [{"key": "app", "operator": "Gt", "values": ["1"]}]}
    constraint = {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": wrong}
    spoilt = pod_from_api(pod(topologySpreadConstraints=[constraint]))
    assert spoilt.invalid.startswith("spec.topologySpreadConstraints[0].labelSelector.matchExpressions: 'Gt'")
    with pytest.raises(ObjectError, match="use In, NotIn"):
        selector_from_api(msgspec.convert(wrong, api.KubeLabelSelector), "f")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nginx", "nginx:latest"),
        ("nginx:1", "nginx:1"),
        ("host:5000/nginx", "host:5000/nginx:latest"),
        ("host:5000/nginx:1", "host:5000/nginx:1"),
        ("nginx@sha256:ab", "nginx@sha256:ab"),
    ],
)
def test_an_image_without_tag_or_digest_means_latest(name: str, expected: str) -> None:
    assert normalised_image(name) == expected


def test_equal_selectors_are_equal_however_they_are_written() -> None:
    one = {"matchLabels": {"b": "2", "a": "1"}}
    other = {
        "matchExpressions": [
            {"key": key, "operator": "In", "values": [value]} for key, value in (("b", "2"), ("a", "1"))
        ]
    }
    found = [selector_from_api(msgspec.convert(json, api.KubeLabelSelector), "f") for json in (one, other)]
    assert found[0] == found[1] == LabelSelector((Requirement("a", "In", ("1",)), Requirement("b", "In", ("2",))))
    assert hash(found[0]) == hash(found[1])


def test_a_service_without_selector_selects_nothing_and_an_empty_one_everything() -> None:
    nothing = workload_from_api(msgspec.convert({"spec": {}}, ByLabels), "v1", "Service")
    everything = workload_from_api(msgspec.convert({"spec": {"selector": {}}}, ByLabels), "v1", "Service")
    assert (nothing.selector, everything.selector) == (None, LabelSelector())
    assert workload_from_api(msgspec.convert({}, BySelector), "apps/v1", "ReplicaSet").selector is None


def test_the_class_of_claims_and_volumes_may_stand_in_the_old_annotation() -> None:
    meta = {"name": "x", "annotations": {"volume.beta.kubernetes.io/storage-class": "old"}}
    json = {"metadata": meta, "spec": {"storageClassName": "new"}}
    assert claim_from_api(msgspec.convert(json, PersistentVolumeClaim)).class_name == "old"
    assert volume_from_api(msgspec.convert(json, KubePersistentVolume)).class_name == "old"
    bad = msgspec.convert({"spec": {"capacity": {"storage": "x"}}}, KubePersistentVolume)
    with pytest.raises(ObjectError, match=r"spec.capacity\[storage\]"):
        volume_from_api(bad)
