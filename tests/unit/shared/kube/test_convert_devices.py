"""Slices, classes and claims from JSON: what is read, and what one bad field says."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.errors import ObjectError
from shared.kube import device_objects as raw
from shared.kube import objects as api
from shared.kube.cluster_objects import ClusterObjects
from shared.kube.pods import convert_devices as convert
from shared.kube.pods.convert_asks import device_pod_from_api
from shared.model.devices import NANO, ClaimRef, nanos_of, quantity_text
from shared.scheduling.devices.load import load_inventory


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("1", NANO), ("500m", NANO // 2), ("1.5Gi", 3 * 2**29 * NANO), ("1e3", 1000 * NANO), ("-2k", -2000 * NANO),
        ("1n", 1), ("0.1n", 1), (".5", NANO // 2), ("1E", 10**18 * NANO), ("1Ei", 2**60 * NANO), ("+3u", 3000),
    ],
)  # fmt: skip
def test_quantities_are_exact(text: str, nanos: int) -> None:
    assert nanos_of(text) == nanos
    assert nanos_of(quantity_text(nanos)) == nanos


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "one", "1GiB", "--1"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity such as"):
        nanos_of(text)


def slice_with(device: dict[str, Any], **spec: Any) -> raw.ResourceSlice:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d", "pool": pool, "nodeName": "n", "devices": [{"name": "d0"} | device]} | spec
    return msgspec.convert({"metadata": {"name": "s"}, "spec": spec}, raw.ResourceSlice)


TWO_TERMS = {"nodeSelectorTerms": [{"matchExpressions": []}, {"matchExpressions": []}]}


@pytest.mark.parametrize(
    ("device", "spec", "says"),
    [
        ({"attributes": {"x": {}}}, {}, "spec.devices[0].attributes[x]: has no value; give int, bool, string"),
        ({"capacity": {"m": {"value": "lots"}}}, {}, "spec.devices[0].capacity[m]: 'lots' is not a quantity"),
        (
            {"capacity": {"m": {"value": "4", "requestPolicy": {"validRange": {"min": "1", "step": "0"}}}}}, {},
            "spec.devices[0].capacity[m].requestPolicy.validRange.step: is not above 0; give a step of at least 1",
        ),
        ({"consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "x"}}}]}, {}, "counters[c]: 'x' is not"),
        ({}, {"nodeName": None, "nodeSelector": TWO_TERMS}, "spec.nodeSelector: has 2 terms; give one"),
    ],
)  # fmt: skip
def test_a_bad_slice_is_named_by_its_field(device: dict[str, Any], spec: dict[str, Any], says: str) -> None:
    with pytest.raises(ObjectError) as error:
        convert.slice_from_api(slice_with(device, **spec))
    assert says in str(error.value)


def claim_with(**devices: Any) -> raw.ResourceClaim:
    return msgspec.convert(
        {"metadata": {"name": "c", "namespace": "n"}, "spec": {"devices": devices}}, raw.ResourceClaim
    )


@pytest.mark.parametrize(
    ("devices", "problem"),
    [
        (
            {"requests": [{"name": "r", "exactly": {"deviceClassName": "x", "selectors": [{"later": 1}]}}]},
            "request r, selector #0: CEL expression empty (unsupported selector type?)",
        ),
        (
            {"requests": [{"name": "r", "exactly": {"deviceClassName": "x", "allocationMode": "Some"}}]},
            "request r: unsupported count mode Some",
        ),
        ({"constraints": [{"requests": ["r"]}]}, "constraint #0: empty constraint (unsupported constraint type?)"),
    ],
)
def test_what_a_later_release_asks_is_a_problem_of_its_claim(devices: dict[str, Any], problem: str) -> None:
    assert convert.claim_from_api(claim_with(**devices)).problem == problem


def test_a_bad_time_of_an_allocation_is_named() -> None:
    found = msgspec.convert({"status": {"allocation": {"allocationTimestamp": "soon"}}}, raw.ResourceClaim)
    with pytest.raises(ObjectError, match=r"allocationTimestamp: 'soon' is no time of RFC 3339"):
        convert.claim_from_api(found)


def test_a_dump_names_the_object_that_cannot_be_used() -> None:
    dump = ClusterObjects(resource_slices=[slice_with({"attributes": {"x": {}}})])
    with pytest.raises(ObjectError, match=r"ResourceSlice s: spec.devices\[0\].attributes\[x\]: has no value"):
        load_inventory(dump)
    assert load_inventory(ClusterObjects()) is None


def test_a_pods_claims_are_found_by_name_or_by_what_was_made_from_their_template() -> None:
    pod = msgspec.convert(
        {
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {
                "resourceClaims": [
                    {"name": "own", "resourceClaimName": "c"},
                    {"name": "made", "resourceClaimTemplateName": "t"},
                    {"name": "unneeded", "resourceClaimTemplateName": "t"},
                    {"name": "waiting", "resourceClaimTemplateName": "t"},
                    {"name": "neither"},
                ]
            },
            "status": {
                "resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made-1"}, {"name": "unneeded"}]
            },
        },
        api.KubePod,
    )
    assert device_pod_from_api(pod).claims == (
        ClaimRef("own", "c"),
        ClaimRef("made", "p-made-1", "t"),
        ClaimRef("unneeded", "", "t"),
        ClaimRef("waiting", None, "t"),
        ClaimRef("neither", sourceless=True),
    )
