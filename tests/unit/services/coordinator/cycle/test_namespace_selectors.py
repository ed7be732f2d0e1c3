"""Affinity to pods of namespaces that are selected: whom a selector means, and who is woken when namespaces change."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shared.model.cluster_events import ObjectChanged
from shared.model.pod import Pod
from shared.model.terms.labels import LabelSelector
from shared.model.terms.relations import AffinityTerm
from shared.scheduling.matching.pod_terms import own_matcher
from shared.scheduling.places import Place
from shared.scheduling.state.namespaces import Namespaces
from shared.scheduling.state.releases import Release
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.queues.queue_scenes import bound, place, told
from tests.unit.services.coordinator.scene import Scene
from twin.model.plain_selectors import selects

Json = dict[str, Any]

TEAM = "team"
SELECTORS: list[tuple[Json | None, set[str]]] = [
    ({}, {"red", "blue", "plain"}),
    (None, set()),
    ({"matchLabels": {TEAM: "red"}}, {"red"}),
    ({"matchExpressions": [{"key": TEAM, "operator": "NotIn", "values": ["red"]}]}, {"blue", "plain"}),
    ({"matchExpressions": [{"key": TEAM, "operator": "DoesNotExist"}]}, {"plain"}),
    ({"matchExpressions": [{"key": TEAM, "operator": "Exists"}]}, {"red", "blue"}),
    ({"matchExpressions": [
        {"key": TEAM, "operator": "Exists"}, {"key": TEAM, "operator": "NotIn", "values": ["blue"]}
    ]}, {"red"}),
]  # fmt: skip
LABELS = {"red": {TEAM: "red"}, "blue": {TEAM: "blue"}, "plain": {}}


def named(selector: Json | None) -> str:
    return str(selector)


def apart(name: str, namespace: str, selector: Json | None, *, kind: str = "podAntiAffinity", **labels: str) -> Pod:
    """A pod with a required term about pods labelled app=x in the selected namespaces, by node."""
    builder = make_pod(name).cpu("1").set(namespace=namespace, labels=labels)
    term: Json = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
    if selector is not None:
        term["namespaceSelector"] = selector
    builder.json["spec"]["affinity"] = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return builder.pod()


def plain(name: str, namespace: str, node: str = "") -> Pod:
    builder = make_pod(name).cpu("1").set(namespace=namespace, labels={"app": "x"})
    return (builder.on(node) if node else builder).pod()


def namespace(scene: Scene, name: str, labels: dict[str, str] | None) -> None:
    scene.inbox.append(ObjectChanged("namespaces", name, labels))


def scene_of(labels: dict[str, dict[str, str]] = LABELS) -> Scene:
    """One node."""
    scene = Scene()
    scene.add_node(make_node("n0").allocatable(cpu="8").label(**{"kubernetes.io/hostname": "n0"}).node())
    for name, found in labels.items():
        namespace(scene, name, found)
    scene.begin()
    scene.run()
    return scene


@pytest.mark.parametrize(("selector", "means"), SELECTORS, ids=map(named, [one for one, _ in SELECTORS]))
def test_a_selector_means_the_namespaces_that_it_selects(selector: Json | None, means: set[str]) -> None:
    """An absent one means the pod's own (``home``)."""
    for there in LABELS:
        scene = scene_of(LABELS | {"home": {}})
        scene.add_pod(plain("there", there, "n0"))
        scene.run()
        scene.add_pod(apart("own", "home", selector))
        scene.run(batch=100, until_s=5)
        assert ("own" in bound(scene)) is (there not in means), there


@pytest.mark.parametrize(("selector", "means"), SELECTORS, ids=map(named, [one for one, _ in SELECTORS]))
def test_the_audit_reads_selectors_alike(selector: Json | None, means: set[str]) -> None:
    assert {name for name, labels in LABELS.items() if selects(selector, labels)} == means


def test_kube_schedulers_reading_is_kept_for_questions_about_it() -> None:
    """``explain --batch`` answers as kube-scheduler 1.36 does."""
    pod = apart("own", "home", {"matchExpressions": [{"key": TEAM, "operator": "NotIn", "values": ["red"]}]})
    assert pod.relations is not None
    terms = pod.relations.anti_affinity
    namespaces = Namespaces(LABELS)
    assert not own_matcher(terms, namespaces).matches("red", {"app": "x"})
    namespaces.release = Release.V1_36
    assert own_matcher(terms, namespaces).matches("red", {"app": "x"})


def test_a_pod_is_woken_when_the_namespace_of_those_in_its_way_is_labelled() -> None:
    scene = scene_of(LABELS | {"home": {}})
    scene.add_pod(plain("there", "red", "n0"))
    scene.run()
    scene.add_pod(apart("own", "home", {"matchLabels": {TEAM: "red"}}))
    scene.run(batch=100, until_s=12)
    assert place(scene, "own") is Place.UNSCHEDULABLE
    namespace(scene, "red", {TEAM: "none"})
    scene.run(batch=100, until_s=12)
    assert "own" in bound(scene)


def test_a_pod_is_woken_when_standing_pods_mean_its_namespace_no_longer() -> None:
    """It has no rules of its own."""
    scene = scene_of()
    scene.add_pod(replace(apart("there", "blue", {"matchLabels": {TEAM: "red"}}), node_name="n0"))
    scene.run()
    scene.add_pod(plain("own", "red"))
    scene.run(batch=100, until_s=12)
    assert "anti-affinity" in told(scene, "own")
    namespace(scene, "red", {TEAM: "green"})
    scene.run(batch=100, until_s=12)
    assert "own" in bound(scene)


@pytest.mark.parametrize("change", [None, {TEAM: "blue"}], ids=["gone", "labelled"])
def test_affinity_to_a_namespace_that_comes_after_the_pod_wakes_it(change: dict[str, str] | None) -> None:
    scene = scene_of({"home": {}})
    scene.add_pod(plain("there", "late", "n0"))
    scene.run()
    scene.add_pod(apart("own", "home", {"matchLabels": {TEAM: "red"}}, kind="podAffinity"))
    scene.run(batch=100, until_s=12)
    assert place(scene, "own") is Place.UNSCHEDULABLE
    namespace(scene, "late", {TEAM: "red"})
    scene.run(batch=100, until_s=12)
    assert "own" in bound(scene)
    namespace(scene, "late", change)
    scene.run()
    scene.add_pod(apart("other", "home", {"matchLabels": {TEAM: "red"}}, kind="podAffinity"))
    scene.run(batch=100, until_s=5)
    assert "other" not in bound(scene)


def test_an_absent_selector_is_no_empty_one() -> None:
    assert own_matcher((AffinityTerm("k", LabelSelector(), ("home",)),), Namespaces()).matches("home", {})
    assert not own_matcher((AffinityTerm("k", LabelSelector(), ("home",)),), Namespaces()).matches("red", {})
