"""What LatencyTarget objects are told: who reaches them, how far away, whose limits are broken, what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from services.coordinator.usage import target_status
from services.coordinator.usage.latency_limits import BrokenLimit
from services.coordinator.usage.measured import MeasuredNode
from services.coordinator.usage.target_status import AGAIN_S, FIGURES_S, SETTLE_S, TargetStatuses
from shared.kube.nodes.latency_targets import LatencyTargetObject, LatencyTargetSpec
from shared.kube.objects import ObjectMeta
from shared.kube.resources import DeletedObject, Upserted
from shared.wire.readings import MAX_TARGETS

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
GOOD = LatencyTargetSpec(host="shop.example", port=443)


def shown(status: Any = None, spec: LatencyTargetSpec = GOOD, *, uid: str = "u1") -> list[Any]:
    return [Upserted(LatencyTargetObject(ObjectMeta(name="shop", uid=uid, generation=1), spec, status))]


def nodes(**ms: float | None) -> dict[str, MeasuredNode]:
    """Latencies to the target by node; None: its agent measures, and has none."""
    found = {}
    for name, one in ms.items():
        latencies = {} if one is None else {"shop": (round(one * 1000), 200)}
        found[name] = MeasuredNode(latencies=latencies, told_s=1.0)
    return found


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    return {one["type"]: (one["status"], one["reason"], one["message"]) for one in status["conditions"]}


def told(statuses: TargetStatuses, known: dict[str, MeasuredNode], *broken: BrokenLimit, at_s: float = 0.0) -> Any:
    found = statuses.due(known, broken, {"shop"}, at_s, NOW)
    return found[0].status if found else None


def test_a_target_that_nodes_measure_says_how_many_and_how_far() -> None:
    statuses = TargetStatuses()
    statuses.saw(shown())
    status = told(statuses, nodes(n0=10.04, n1=30, n2=None))
    assert conditions(status)["Reachable"] == (
        "True", "MeasuredBySome", "2 of 3 nodes know their latency; not n2"
    )  # fmt: skip
    assert (status["nodesMeasuring"], status["nodesWithSensors"], status["medianMilliseconds"]) == (2, 3, 20.0)
    assert (status["leastMilliseconds"], status["mostMilliseconds"], status["spreadMilliseconds"]) == (10.0, 30.0, 0.2)
    assert conditions(status)["LimitsKept"][0] == "True"


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({}, ("Unknown", "NoSensors")),
        (nodes(n0=None, n1=None), ("False", "NobodyMeasures")),
        (nodes(n0=1, n1=2), ("True", "MeasuredByAll")),
    ],
)
def test_reachable_is_unknown_until_an_agent_tells_and_false_where_none_gets_there(known: Any, expected: Any) -> None:
    statuses = TargetStatuses()
    statuses.saw(shown())
    assert conditions(told(statuses, known))["Reachable"][:2] == expected


def test_a_broken_limit_names_the_policies_that_did_not_look_at_it() -> None:
    statuses = TargetStatuses()
    statuses.saw(shown())
    broken = [
        BrokenLimit(f"default/p{number}", "n0", "shop", by) for number, by in enumerate(("", "ee@1", "ee@1", "lb@2"))
    ]
    message = conditions(told(statuses, nodes(n0=50), *broken))["LimitsKept"][2]
    assert message.count("ee@1 does not look at it") == message.count("lb@2 does not look at it") == 1


def test_a_broken_limit_names_the_pods_and_their_nodes() -> None:
    statuses = TargetStatuses()
    statuses.saw(shown())
    broken = [BrokenLimit(f"default/p{number}", "n0", "shop") for number in range(7)]
    status = told(statuses, nodes(n0=50), *broken, BrokenLimit("default/other", "n0", "another"))
    state, reason, message = conditions(status)["LimitsKept"]
    assert (state, reason, status["podsBeyondHardLimit"]) == ("False", "LimitBroken", 7)
    assert message.startswith("beyond the hard limit: default/p0 on n0, ")
    assert message.endswith(" and 2 more")


def test_one_that_cannot_be_used_is_told_which_field_is_wrong() -> None:
    statuses = TargetStatuses()
    statuses.saw(shown(spec=LatencyTargetSpec(host="shop.example", port=0)))
    found = conditions(told(statuses, nodes(n0=10)))
    assert found["Accepted"] == ("False", "InvalidSpec", "spec.port: must be a TCP port, 1 to 65535")
    assert found["Reachable"][:2] == ("Unknown", "NotTried")


def test_what_is_written_is_not_written_again_and_figures_alone_rarely() -> None:
    statuses = TargetStatuses()
    statuses.saw(shown())
    status = told(statuses, nodes(n0=10))
    statuses.saw(shown(status))
    assert told(statuses, nodes(n0=10), at_s=1000.0) is None
    assert told(statuses, nodes(n0=12), at_s=FIGURES_S - 1) is None
    assert told(statuses, nodes(n0=12), at_s=FIGURES_S)["medianMilliseconds"] == 12.0


def test_a_condition_that_changes_is_written_soon_and_keeps_the_times_of_the_others() -> None:
    statuses = TargetStatuses()
    statuses.saw(shown())
    statuses.saw(shown(told(statuses, nodes(n0=10))))
    [work] = statuses.due(nodes(n0=None), (), {"shop"}, AGAIN_S, LATER)
    times = {one["type"]: one["lastTransitionTime"] for one in work.status["conditions"]}
    assert times == {"Accepted": NOW, "Reachable": LATER, "LimitsKept": NOW}
    assert (work.name, work.uid) == ("shop", "u1")


def test_a_write_that_failed_is_asked_for_again_but_not_at_every_look() -> None:
    statuses = TargetStatuses()
    statuses.saw(shown())
    assert told(statuses, nodes(n0=10), at_s=0.0) is not None
    assert told(statuses, nodes(n0=10), at_s=AGAIN_S - 1) is None
    assert told(statuses, nodes(n0=10), at_s=AGAIN_S) is not None


def test_a_status_that_somebody_else_wrote_oddly_is_replaced() -> None:
    statuses = TargetStatuses()
    statuses.saw(shown({"conditions": ["odd", {"status": "True"}], "nodesMeasuring": "many"}))
    assert told(statuses, nodes(n0=10))["nodesMeasuring"] == 1


def test_one_that_is_gone_is_told_nothing() -> None:
    statuses = TargetStatuses()
    statuses.saw(shown())
    statuses.saw([DeletedObject(shown()[0].object)])
    assert told(statuses, nodes(n0=10)) is None


def test_whether_a_target_is_tried_is_what_agents_are_told_and_not_its_place_among_objects() -> None:
    """Objects that cannot be used take nobody's place."""
    statuses = TargetStatuses()
    for number in range(MAX_TARGETS):
        bad = ObjectMeta(name=f"bad{number}", uid=f"u{number}", generation=1)
        statuses.saw([Upserted(LatencyTargetObject(bad, LatencyTargetSpec(), None))])
    statuses.saw(shown())
    found = {work.name: conditions(work.status)["Accepted"] for work in statuses.due({}, (), {"shop"}, 0.0, NOW)}
    assert found["shop"][0] == "True"
    untried = TargetStatuses()
    untried.saw(shown())
    [work] = untried.due({}, (), set(), 0.0, NOW)
    assert conditions(work.status)["Accepted"] == ("False", "InvalidSpec", f"only {MAX_TARGETS} targets are tried")


def test_a_message_that_names_others_is_written_though_all_counts_are_the_same() -> None:
    statuses = TargetStatuses()
    statuses.saw(shown())
    statuses.saw(shown(told(statuses, nodes(n0=10, n1=None))))
    assert told(statuses, nodes(n0=None, n1=10), at_s=FIGURES_S - 1) is None
    status = told(statuses, nodes(n0=None, n1=10), at_s=FIGURES_S)
    assert conditions(status)["Reachable"][2].endswith("not n0")


def test_a_new_leader_that_has_heard_nobody_yet_leaves_what_the_one_before_it_wrote() -> None:
    before = TargetStatuses()
    before.saw(shown())
    status = told(before, nodes(n0=50), BrokenLimit("default/p0", "n0", "shop"))
    statuses = TargetStatuses()
    statuses.saw(shown(status))
    assert told(statuses, {}, at_s=1000.0) is None
    assert told(statuses, {}, at_s=1000.0 + SETTLE_S - 1) is None
    assert conditions(told(statuses, {}, at_s=1000.0 + SETTLE_S))["Reachable"][1] == "NoSensors"


def test_without_that_time_each_new_leader_would_take_back_what_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_status, "SETTLE_S", 0.0)
    before, statuses = TargetStatuses(), TargetStatuses()
    before.saw(shown())
    statuses.saw(shown(told(before, nodes(n0=50), BrokenLimit("default/p0", "n0", "shop"))))
    assert conditions(told(statuses, {}, at_s=1000.0))["LimitsKept"][0] == "True"


def test_an_object_whose_spec_is_new_is_told_by_a_new_leader_at_once() -> None:
    before, statuses = TargetStatuses(), TargetStatuses()
    before.saw(shown())
    statuses.saw(shown(told(before, nodes(n0=50)) | {"observedGeneration": 0}))
    assert told(statuses, nodes(n0=50))["observedGeneration"] == 1
