"""From API objects to the model."""

from __future__ import annotations

import pytest

from shared.kube.pods.convert_requests import effective_requests
from tests.builders import make_node, make_pod


def test_an_unparsable_quantity_names_the_field_and_spoils_only_its_pod() -> None:
    pod = make_pod().cpu("five").pod()
    assert pod.invalid.startswith("spec.containers[0].resources.requests[cpu]: ")
    assert make_pod().cpu("5").pod().invalid == ""


def test_a_negative_request_is_invalid() -> None:
    assert "negative" in make_pod().memory("-1").pod().invalid


def test_an_unparsable_allocatable_counts_as_nothing() -> None:
    node = make_node().allocatable(cpu="lots").node()
    assert "status.allocatable[cpu]" in node.invalid
    assert "cpu" not in node.allocatable


@pytest.mark.parametrize("milli", [1500, 1001, 3999])
def test_gpu_thousandths_are_a_share_or_whole_devices(milli: int) -> None:
    assert "multiple of 1000" in make_pod().gpu_milli(milli).pod().invalid


def test_the_largest_init_step_counts_with_the_sidecars_before_it() -> None:
    builder = make_pod().cpu("100m")
    builder.json["spec"]["initContainers"] = [
        {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "50m"}}},
        {"name": "i", "resources": {"requests": {"cpu": "300m"}}},
        {"name": "t", "restartPolicy": "Always", "resources": {"requests": {"cpu": "10m"}}},
    ]
    assert effective_requests(builder.api())["cpu"] == 350


def test_pod_level_requests_replace_and_overhead_is_added() -> None:
    builder = make_pod().cpu("100m").memory("1Gi")
    builder.json["spec"]["resources"] = {"requests": {"cpu": "1"}}
    builder.json["spec"]["overhead"] = {"cpu": "20m"}
    assert effective_requests(builder.api()) == {"cpu": 1020, "memory": 1 << 30}


def test_pods_of_one_template_share_a_class() -> None:
    assert make_pod("a").cpu("1").pod().pod_class == make_pod("b").cpu("1000m").pod().pod_class
    assert hash(make_pod("a").cpu("1").pod().pod_class) == hash(make_pod("b").cpu("1").pod().pod_class)


def test_pods_of_one_template_keep_one_class_between_them() -> None:
    assert make_pod("a").cpu("1").pod().pod_class is make_pod("b").cpu("1000m").pod().pod_class
    assert make_pod("a").cpu("1").pod().pod_class is not make_pod("b").cpu("2").pod().pod_class


def test_devices_are_read_from_the_annotation() -> None:
    assert make_pod().set(annotations={"conclave.io/gpu-devices": "2,5"}).pod().devices == (2, 5)
    assert "comma-separated" in make_pod().set(annotations={"conclave.io/gpu-devices": "2;5"}).pod().invalid


@pytest.mark.parametrize("name", ["gpu-fraction", "gpu-memory"])
def test_a_share_of_a_gpu_that_only_kai_hands_out_keeps_the_pod_waiting(name: str) -> None:
    pod = make_pod().set(annotations={name: "0.5"})
    assert f"the annotation {name}" in pod.pod().unsupported
    assert not pod.on("n").pod().unsupported  # who placed it knows
    assert not make_pod().set(annotations={"note": name}).pod().unsupported


@pytest.mark.parametrize(
    ("text", "seconds"), [("60s", 60), ("60", 60), ("7200", 3600), ("9" * 5000, 0), ("soon", 0), ("-1", 0), ("", 0)]
)
def test_what_is_no_number_of_seconds_to_keep_room_is_not_said_and_raises_nothing(text: str, seconds: int) -> None:
    pod = make_pod("a").set(annotations={"conclave.io/keep-room": text}).pod()
    assert (pod.invalid, pod.keep_room_s) == ("", seconds)
