"""For which pods room is kept is found by what reservations ask for, however they say it."""

from __future__ import annotations

from typing import Any

import pytest

from shared.kube.objects import ObjectMeta
from shared.kube.reservations import ReservationObject, reserve_pod_from_api
from shared.scheduling.state.room.reserved_room import ReservedRoom
from tests.builders import make_pod


def reserve(name: str, *owners: dict[str, Any]) -> Any:
    spec = {"resources": {"cpu": "1"}, "owners": list(owners)}
    meta = ObjectMeta(name=name, namespace="default", uid=name)
    return reserve_pod_from_api(ReservationObject(meta, spec, {"phase": "Available", "node": "n"}))


APP_A_OR_B = {"selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}}
NOT_C = {"selector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["c"]}]}}
BOTH = {"selector": {"matchLabels": {"app": "a", "tier": "gold"}}}


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        ({"app": "a"}, ["any", "ab"]),
        ({"app": "b"}, ["any", "ab"]),
        ({"app": "c"}, []),
        ({}, ["any"]),
        ({"app": "a", "tier": "gold"}, ["any", "ab", "both"]),
    ],
)
def test_a_selector_finds_its_pods_by_their_labels(labels: dict[str, str], wanted: list[str]) -> None:
    room = ReservedRoom()
    for one in (
        reserve("any", NOT_C),
        reserve("ab", APP_A_OR_B),
        reserve("both", BOTH),
        reserve("named", {"pod": "x"}),
    ):
        room.put(one)
    pod = make_pod("p").set(labels=labels).pod()
    assert sorted(one.uid for one in room.kept_for(pod)) == sorted(wanted)
    assert set(room._labels) == {"default"}  # a pod of another namespace looks at none of them
    for uid in ("any", "ab", "both", "named"):
        room.drop(uid)
    assert room.kept_for(pod) == []
    assert (room._labels, room._by_owner) == ({}, {})
