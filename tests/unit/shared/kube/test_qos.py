"""The QoS class of a pod, in four vocabularies."""

from __future__ import annotations

import pytest

from shared.kube.pods.qos import VOCABULARIES
from shared.model.qos import Qos
from tests.builders import make_pod

KOORDINATOR, KATALYST, VOLCANO = (key for _, key, _ in VOCABULARIES[:3])


@pytest.mark.parametrize(
    ("where", "key", "text", "qos"),
    [
        pytest.param(where, key, text, qos, id=f"{where}-{key}-{text}")
        for where, key, known in VOCABULARIES
        for text, qos in known.items()
    ],
)
def test_each_word_of_each_vocabulary_is_one_class(where: str, key: str, text: str, qos: Qos) -> None:
    pod = make_pod().set(**{f"{where}s": {key: text}}).pod()
    assert (pod.qos, pod.qos_doubt) == (qos, "")


def test_who_says_nothing_is_online() -> None:
    assert (make_pod().pod().qos, make_pod().pod().qos_doubt) == (Qos.ONLINE, "")


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_a_key_counts_where_its_vocabulary_puts_it(where: str) -> None:
    keys = {KOORDINATOR: "BE", KATALYST: "reclaimed_cores", VOLCANO: "BE"}
    right = {KOORDINATOR: "labels", KATALYST: "annotations", VOLCANO: "annotations"}
    for key, text in keys.items():
        qos = Qos.OFFLINE if right[key] == where else Qos.ONLINE
        assert make_pod().set(**{where: {key: text}}).pod().qos is qos


@pytest.mark.parametrize(
    ("labels", "annotations", "qos"),
    [
        ({KOORDINATOR: "BE"}, {VOLCANO: "LS"}, Qos.ONLINE),
        ({KOORDINATOR: "LS"}, {VOLCANO: "BE"}, Qos.ONLINE),
        ({KOORDINATOR: "BE"}, {KATALYST: "dedicated_cores"}, Qos.EXCLUSIVE),
        ({KOORDINATOR: "SYSTEM"}, {KATALYST: "shared_cores"}, Qos.SYSTEM),
        ({KOORDINATOR: "BE", "conclave.io/qos": "offline"}, {"conclave.io/qos": "online"}, Qos.ONLINE),
    ],
)
def test_of_contradicting_claims_the_most_protected_counts_and_all_are_named(
    labels: dict[str, str], annotations: dict[str, str], qos: Qos
) -> None:
    pod = make_pod().set(labels=labels, annotations=annotations).pod()
    assert pod.qos is qos
    assert all(f"{key}: {text}" in pod.qos_doubt for key, text in (labels | annotations).items())
    assert "\n" not in pod.qos_doubt


def test_what_agrees_is_no_contradiction() -> None:
    pod = make_pod().set(labels={KOORDINATOR: "BE"}, annotations={VOLCANO: "BE", KATALYST: "reclaimed_cores"}).pod()
    assert (pod.qos, pod.qos_doubt) == (Qos.OFFLINE, "")


@pytest.mark.parametrize("text", ["", "be", "Offline", "x" * 1000])
def test_a_word_that_no_vocabulary_knows_counts_as_online_and_is_named(text: str) -> None:
    pod = make_pod().set(labels={KOORDINATOR: text}).pod()
    assert pod.qos is Qos.ONLINE
    assert pod.qos_doubt.startswith(f"label {KOORDINATOR}: {text[:64]!r} is none of LSE, LSR, LS, BE, SYSTEM")
    assert len(pod.qos_doubt) < 250


@pytest.mark.parametrize(
    "name",
    [
        "kubernetes.io/batch-cpu",
        "kubernetes.io/batch-memory",
        "example.com/batch-cpu",
        "resource.katalyst.kubewharf.io/reclaimed_millicpu",
        "resource.katalyst.kubewharf.io/reclaimed_memory",
    ],
)
def test_who_requests_lent_resources_is_offline_whatever_it_claims(name: str) -> None:
    plain, claiming = make_pod(), make_pod().set(labels={KOORDINATOR: "LSE"})
    for builder in (plain, claiming):
        builder.json["spec"]["containers"][0]["resources"]["requests"] = {name: "1000"}
    assert (plain.pod().qos, plain.pod().qos_doubt) == (Qos.OFFLINE, "")
    assert claiming.pod().qos is Qos.OFFLINE
    assert name in claiming.pod().qos_doubt
    assert KOORDINATOR in claiming.pod().qos_doubt


@pytest.mark.parametrize("name", ["kubernetes.io/mid-cpu", "example.com/reclaimed_memory", "cpu", "batch-cpu"])
def test_other_resources_say_nothing(name: str) -> None:
    builder = make_pod()
    builder.json["spec"]["containers"][0]["resources"]["requests"] = {name: "1000"}
    assert builder.pod().qos is Qos.ONLINE


def test_a_bound_pod_has_its_class_too() -> None:
    assert make_pod().on("n").set(labels={KOORDINATOR: "BE"}).pod().qos is Qos.OFFLINE
