"""The audit's sums by zone: a Binding that no seating allows is told; what the log does not determine is not."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import msgspec
import pytest

from lab.audit import zone_seats
from lab.audit.zone_sums import ZoneSums
from shared.kube.nodes.node_topology import needs_of
from shared.kube.objects import PodSpec
from shared.model.node_topology import TopologyPolicy, TopologyScope
from tests.unit.lab.audit.audit_history import History
from tests.unit.shared.scheduling.numa.make import GI, topology
from twin.model.managers import Managers
from twin.model.zones import object_of

Json = dict[str, Any]
NRT, CNR = "NodeResourceTopology", "CustomNodeResource"


def inside(policy: str = "single-numa-node", scope: str = "container", *, cpu: int = 8, reserved: int = 0) -> Json:
    """Two zones of ``cpu`` CPUs."""
    zones = [
        {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [
                {"name": "cpu", "capacity": str(cpu), "allocatable": str(cpu - reserved), "available": "0"},
                {"name": "memory", "capacity": "8Gi", "allocatable": "8Gi", "available": "0"},
            ],
        }
        for number in range(2)
    ]
    said = [{"name": "topologyManagerPolicy", "value": policy}, {"name": "topologyManagerScope", "value": scope}]
    return {"metadata": {"name": "n1"}, "attributes": said, "zones": zones}


def container(cpu: str, memory: str = "1Gi", **more: Any) -> Json:
    amounts = {"cpu": cpu, "memory": memory}
    return {"name": "c", "resources": {"requests": amounts, "limits": amounts}, **more}


def spec(*cpus: str, sidecars: tuple[str, ...] = (), init: tuple[str, ...] = (), memory: str = "1Gi") -> Json:
    first = [container(one) for one in init] + [container(one, restartPolicy="Always") for one in sidecars]
    return {"containers": [container(one, memory) for one in cpus], "initContainers": first}


def one_by_one(item: Json, *pods: Json, kind: str = NRT) -> list[bool]:
    """Of each pod, as it is bound, whether the audit says that it cannot be there."""
    sums = ZoneSums()
    sums.change(kind, "n1", item, 0.0)
    return [bool(sums.bound(str(n), one, "n1", 100.0 + 10 * n, mine=True)) for n, one in enumerate(pods)]


@pytest.mark.parametrize(
    ("item", "pods", "wrong"),
    [
        (inside(), [spec("5"), spec("3"), spec("5")], [False] * 3),
        (inside(), [spec("5"), spec("5"), spec("6")], [False, False, True]),
        (inside("restricted"), [spec("5"), spec("5"), spec("6")], [False, False, True]),
        (inside("restricted"), [spec("10"), spec("6")], [False, False]),
        (inside("best-effort"), [spec("5"), spec("5"), spec("6")], [False] * 3),
        (inside("none"), [spec("10"), spec("7")], [False, True]),
        (inside(), [spec("5", "5")], [False]),
        (inside(scope="pod"), [spec("5", "5")], [True]),
        (inside(), [spec("4", sidecars=("6",)), spec("4"), spec("3")], [False, False, True]),
        (inside(scope="pod"), [spec("5", sidecars=("4",))], [True]),
        (inside(), [spec("5", init=("8",)), spec("8")], [False, False]),
        (inside(), [spec("5500m"), spec("5500m"), spec("5500m")], [False] * 3),
        (inside(), [spec("1", memory="5Gi")] * 3, [False, False, True]),
        (inside(reserved=2), [spec("7")], [True]),
        (inside(), [{**spec("5"), "resources": {}}] * 3, [False] * 3),
    ],
    ids=[
        "seated apart", "no zone for the third", "restricted too", "several zones where one has not as much",
        "best effort spreads", "never more than all", "containers apart", "the pod together", "sidecars stay",
        "sidecars of the pod", "what init containers held is not known", "shared CPUs", "memory", "reserved",
        "requests of the pod",
    ],
)  # fmt: skip
def test_what_no_seating_has_room_for_is_told(item: Json, pods: list[Json], wrong: list[bool]) -> None:
    assert one_by_one(item, *({"spec": one} for one in pods)) == wrong


def katalyst(*held: dict[str, str]) -> Json:
    """Zones of 8 CPUs; in each the CPUs of pods by uid."""
    amounts = {"allocatable": {"cpu": "8", "memory": "8Gi"}}
    numa = [
        {
            "type": "Numa", "name": str(number), "resources": amounts,
            "allocations": [{"consumer": f"d/p/{uid}", "requests": {"cpu": cpu}} for uid, cpu in of.items()],
        }
        for number, of in enumerate(held)
    ]  # fmt: skip
    tree = [{"type": "Socket", "name": "0", "children": numa}]
    return {"metadata": {"name": "n1"}, "status": {"topologyZone": tree}}


def dedicated(cpu: str, *, alone: bool = False) -> Json:
    wanted = {"numa_binding": "true"} | ({"numa_exclusive": "true"} if alone else {})
    annotations = {
        "katalyst.kubewharf.io/qos_level": "dedicated_cores",
        "katalyst.kubewharf.io/memory_enhancement": json.dumps(wanted),
    }
    return {"metadata": {"annotations": annotations}, "spec": spec(cpu)}


@pytest.mark.parametrize(
    ("item", "pods", "wrong"),
    [
        (katalyst({}, {}), [dedicated("5"), dedicated("5"), dedicated("4")], [False, False, True]),
        (katalyst({"0": "3"}, {"1": "3"}), [dedicated("3"), dedicated("3"), dedicated("6")], [False, False, True]),
        (katalyst({"0": "3", "1": "3"}, {}), [dedicated("3"), dedicated("3"), dedicated("6")], [False] * 3),
        (katalyst({"0": "6", "1": "6"}, {}), [dedicated("6"), dedicated("6")], [False, True]),
        (katalyst({}, {}), [dedicated("1", alone=True), dedicated("1"), dedicated("1")], [False] * 3),
        (katalyst({}, {}), [dedicated("1", alone=True)] * 2 + [dedicated("1")], [False, False, True]),
        (katalyst({}, {}), [{"spec": spec("8")}] * 3, [False] * 3),
    ],
    ids=["summed", "where it says", "together where it says", "the object is over", "beside one alone", "all are alone",
         "others are not asked"],
)  # fmt: skip
def test_katalysts_pods_are_summed_where_its_object_has_them(item: Json, pods: list[Json], wrong: list[bool]) -> None:
    assert one_by_one(item, *pods, kind=CNR) == wrong


def test_who_has_left_or_was_put_there_by_others_a_moment_ago_takes_nothing() -> None:
    sums, asked = ZoneSums(), {"spec": spec("6")}
    sums.change(NRT, "n1", inside(), 0.0)
    assert not sums.bound("a", asked, "n1", 10.0, mine=True)
    assert not sums.bound("b", asked, "n1", 20.0, mine=True)
    sums.left("a", "n1")
    assert not sums.bound("c", asked, "n1", 30.0, mine=True)
    sums.left("c", "n1")
    assert not sums.bound("theirs", asked, "n1", 40.0, mine=False)
    assert not sums.bound("d", asked, "n1", 40.5, mine=True)
    assert not sums.bound("e", asked, "n1", 50.0, mine=True), "they are over-committed without it"
    sums.left("e", "n1")
    sums.left("theirs", "n1")
    assert "no seating in its zones exists: cpu 18000 of [8000, 8000]" in sums.bound("e", asked, "n1", 50.0, mine=True)


def test_what_the_log_does_not_determine_is_counted_and_held_against_nobody() -> None:
    sums, asked = ZoneSums(), {"spec": spec("9")}
    assert not sums.bound("a", asked, "n1", 10.0, mine=True)
    assert sums.unjudged == 0, "without an object no kubelet is known to ask for zones"
    for number, item in enumerate((inside("numeric"), {**inside(), "zones": inside()["zones"][:1] * 2}, {"zones": 1})):
        sums.change(NRT, "n1", item, 20.0 * number + 20)
        assert not sums.bound(str(number), asked, "n1", 20.0 * number + 30, mine=True)
    assert sums.unjudged == 3
    sums.change(NRT, "n1", inside(), 100.0)
    assert not sums.bound("soon", asked, "n1", 101.0, mine=True), "nobody may have seen it yet"
    sums.left("soon", "n1")


@pytest.mark.parametrize(("tries", "wrong", "unjudged"), [(1, False, 1), (4000, True, 0)])
def test_a_search_that_is_cut_short_accuses_nobody(
    monkeypatch: pytest.MonkeyPatch, tries: int, wrong: bool, unjudged: int
) -> None:
    monkeypatch.setattr(zone_seats, "MOST_TRIES", tries)
    sums = ZoneSums()
    sums.change(NRT, "n1", inside(), 0.0)
    assert not any(sums.bound(str(number), {"spec": spec("5")}, "n1", 10.0, mine=True) for number in range(2))
    assert bool(sums.bound("last", {"spec": spec("4")}, "n1", 10.0, mine=True)) is wrong
    assert sums.unjudged == unjudged


def test_pods_that_fill_their_zones_exactly_are_never_accused() -> None:
    """The greedy ways find no seating for some of them."""
    rng, cpus, sums = Random(6), 32, ZoneSums()
    item = inside(cpu=cpus)
    item["zones"] = [{**item["zones"][0], "name": f"node-{number}"} for number in range(4)]
    sums.change(NRT, "n1", json.loads(json.dumps(item).replace("8Gi", "128Gi")), 0.0)
    packed = []
    for _ in item["zones"]:
        cpu, memory = cpus, 128
        while cpu > 2 and memory > 4:
            packed.append((rng.randint(1, min(9, cpu)), rng.randint(2, min(36, memory))))
            cpu, memory = cpu - packed[-1][0], memory - packed[-1][1]
    rng.shuffle(packed)
    for number, (cpu, memory) in enumerate(packed):
        asked = {"spec": spec(str(cpu), memory=f"{memory}Gi")}
        assert not sums.bound(str(number), asked, "n1", 10.0 + number, mine=True)


def test_a_node_may_have_more_containers_than_calls_lie_in_each_other() -> None:
    sums = ZoneSums()
    sums.change(NRT, "n1", json.loads(json.dumps(inside(cpu=256)).replace("8Gi", "2000Gi")), 0.0)
    for number in range(5):
        asked = {"spec": spec(*["100m"] * 240)}
        assert not sums.bound(str(number), asked, "n1", 10.0 + number, mine=True)
    assert zone_seats.seated([{"cpu": 1200}], [zone_seats.ZoneItem(n, (("cpu", 1),)) for n in range(1200)], {})
    search = zone_seats._Search([{"cpu": 1200}], [zone_seats.ZoneItem(n, (("cpu", 1),)) for n in range(1200)])
    assert search.run()[0]


def test_a_pod_that_an_init_container_spreads_lies_over_zones() -> None:
    """Zones of CPUs and GPUs alone: init 12 needs both, where the first two pods took a CPU of each."""
    item = inside("restricted", "pod")
    for zone in item["zones"]:
        amounts = {"capacity": "1", "allocatable": "1", "available": "0"}
        zone["resources"][1] = {"name": "nvidia.com/gpu", **amounts}
    first = {"spec": spec("1")}
    first["spec"]["containers"][0]["resources"]["limits"] |= {"nvidia.com/gpu": "1"}
    assert one_by_one(item, first, first, {"spec": spec("8", init=("12",))}) == [False] * 3
    assert one_by_one(item, first, first, {"spec": spec("8")}) == [False, False, True]


@pytest.mark.parametrize("change", [{}, {"zones": 1}, None], ids=["another policy", "unreadable", "no object"])
def test_who_stands_keeps_what_the_policy_gave_him_under_which_he_came(change: Json | None) -> None:
    """Under best effort the fourth pod of 3 lies over both zones, so a zone may have 4 free."""
    sums, before = ZoneSums(), inside("best-effort")
    sums.change(NRT, "n1", None if change is None else {**before, **change}, 0.0)
    for number in range(4):
        assert not sums.bound(str(number), {"spec": spec("3")}, "n1", 10.0 + number, mine=True)
    sums.change(NRT, "n1", inside(), 100.0)
    assert not sums.bound("new", {"spec": spec("4")}, "n1", 200.0, mine=True)
    sums.left("new", "n1")
    assert sums.bound("new", {"spec": spec("5")}, "n1", 200.0, mine=True)


@pytest.mark.parametrize("zones", [1, [{"name": "node-0", "type": "Node", "resources": [{"capacity": "8"}]}]])
@pytest.mark.parametrize("kind", [NRT, CNR])
def test_an_object_that_cannot_be_read_ends_no_audit(kind: str, zones: object) -> None:
    item = {**inside(), "zones": zones} if kind == NRT else {**katalyst(), "status": {"topologyZone": zones}}
    told = History().node("n1", {"cpu": "16", "memory": "64Gi", "pods": "10"}).other(kind, item).wait(10)
    assert told.pod("p", **spec("5")).wait(5).bind("p").pod("q", **spec("5")).wait(60).report().pods_bound == 1


def history() -> History:
    told = History().node("n1", {"cpu": "16", "memory": "64Gi", "pods": "10"})
    told.other(NRT, inside()).wait(10)
    for number, cpu in enumerate(("5", "5", "6")):
        told.pod(f"p{number}", **spec(cpu)).wait(5).bind(f"p{number}")
    return told


def test_a_node_with_room_and_no_zone_with_room_fails_the_audit() -> None:
    report = history().report()
    assert (report.zones_overcommitted, report.overcommitted_nodes, report.ok) == (1, 0, False)
    assert any(one.startswith("zones: default/p2 on n1: no seating in its zones exists") for one in report.examples)


def test_without_the_sums_such_a_node_goes_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ZoneSums, "bound", lambda *_, **__: "")
    assert history().report().ok


def test_managers_that_let_a_pod_on_are_never_contradicted_and_most_that_refuse_are_seen() -> None:
    """Against the twin's kubelets, which the oracle holds to the real ones: pods come, and some leave."""
    rng, seen, refused = Random(7), 0, 0
    policies = (
        TopologyPolicy.SINGLE_NUMA_NODE, TopologyPolicy.RESTRICTED, TopologyPolicy.BEST_EFFORT, TopologyPolicy.NONE,
    )  # fmt: skip
    for number in range(40):
        node = topology("n1", zones=rng.choice((1, 2, 4)), cpus=rng.choice((4, 8)), memory=16 * GI, gpus=number % 2,
                        policy=policies[number % 4], scope=rng.choice(list(TopologyScope)))  # fmt: skip
        managers, sums, there = Managers(node), ZoneSums(), list[str]()
        item = object_of(node)
        for zone in item["zones"]:
            for one in zone["resources"]:
                one.setdefault("capacity", one["allocatable"])
        sums.change(NRT, "n1", item, 0.0)
        for step in range(12):
            if there and rng.random() < 0.3:
                uid = there.pop(rng.randrange(len(there)))
                managers.remove(uid)
                sums.left(uid, "n1")
            asked = spec(*rng.choices(("1", "2", "3", "5", "1500m"), k=rng.choice((1, 1, 2))),
                         sidecars=("1",) * rng.choice((0, 0, 1)), init=("7",) * rng.choice((0, 0, 1)),
                         memory=rng.choice(("1Gi", "6Gi")))  # fmt: skip
            if rng.random() < 0.2:
                asked["containers"][0]["resources"]["limits"] = {
                    **asked["containers"][0]["resources"]["limits"], "nvidia.com/gpu": "1",
                }  # fmt: skip
            needs = needs_of(msgspec.convert(asked, PodSpec))
            assert needs is not None
            uid = f"{number}-{step}"
            admitted = managers.admit(uid, needs).refusal is None
            wrong = sums.bound(uid, {"spec": asked}, "n1", 100.0 * step + 100, mine=True)
            assert not (admitted and wrong), (node, asked, wrong)
            if admitted:
                there.append(uid)
            else:
                refused, seen = refused + 1, seen + bool(wrong)
                sums.left(uid, "n1")
    assert seen > refused / 2 > 20
