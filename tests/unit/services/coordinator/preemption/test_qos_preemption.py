"""Online pods preempt offline ones of their priority where the setting says so; nobody is evicted upwards."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from services.coordinator.core.instructions import PatchCondition
from services.coordinator.core.state import CoreSettings
from services.coordinator.inspect.explain import explain
from services.coordinator.inspect.group_explain import explain_group
from shared.model.cluster_events import ObjectChanged
from shared.model.units.pod_group import GroupSource, PodGroup
from tests.builders import PodBuilder, make_node, make_pod
from tests.unit.services.coordinator.scene import Scene
from tests.unit.shared.scheduling.preemption.test_giving_way import NOW, OWNER, at

ON = CoreSettings(validate=True, offline_preemption=True)


def offline(
    name: str, *, priority: int = 0, ran_s: float = 100.0, owned: bool = True, **annotations: str
) -> PodBuilder:
    """An offline pod that holds plain resources, as a job on whole GPUs does."""
    said = {f"conclave.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    pod = make_pod(name).cpu("3").priority(priority).set(annotations={"conclave.io/qos": "offline", **said})
    if owned:
        pod.set(ownerReferences=OWNER)
    pod.json["status"]["startTime"] = at(ran_s)
    return pod


def full(*pods: PodBuilder, settings: CoreSettings = ON) -> Scene:
    """A node of 4 CPU for each pod, which stands there."""
    scene = Scene(settings=settings)
    scene.core.state.epoch = NOW - scene.now
    for number in range(len(pods)):
        scene.add_node(make_node(f"n{number}").node())
    scene.begin()
    for number, pod in enumerate(pods):
        scene.add_pod(pod.on(f"n{number}").pod())
    scene.run()
    return scene


def online(name: str = "online", priority: int = 0) -> PodBuilder:
    return make_pod(name).cpu("3").priority(priority)


def test_an_online_pod_preempts_an_offline_one_of_its_priority() -> None:
    scene = full(offline("a"))
    scene.add_pod(online().pod())
    scene.run(until_s=15)
    assert scene.evicted == ["uid-a"]
    assert scene.bindings == [("uid-online", "n0")]


def test_without_the_setting_priorities_alone_decide() -> None:
    scene = full(offline("a"), settings=CoreSettings(validate=True))
    scene.add_pod(online().pod())
    scene.run(until_s=15)
    assert not scene.evicted


def test_nobody_is_evicted_whose_priority_is_higher() -> None:
    scene = full(offline("a", priority=10))
    scene.add_pod(online(priority=9).pod())
    scene.run(until_s=15)
    assert not scene.evicted


@pytest.mark.parametrize("gang", [False, True])
def test_an_offline_pod_preempts_no_online_one_whatever_its_priority(gang: bool) -> None:
    scene = full(online("running"))
    pod = offline("a", priority=1000).pod()
    if gang:
        key = f"{GroupSource.PLUGINS.value}:default/g"
        group = PodGroup(key, GroupSource.PLUGINS, "default", "g", gang=True, min_count=1)
        scene.inbox.append(ObjectChanged("podgroups.scheduling.x-k8s.io", "default/g", group))
        pod = replace(pod, group=key)
    scene.add_pod(pod)
    scene.run(until_s=15)
    assert not scene.evicted
    assert scene.of(PatchCondition)


def test_an_offline_pod_without_a_controller_is_preempted_by_its_equals_only_where_it_says_so() -> None:
    scene = full(offline("bare", owned=False))
    scene.add_pod(online().pod())
    scene.run(until_s=15)
    assert not scene.evicted
    scene = full(offline("bare", owned=False, preemptible="true"))
    scene.add_pod(online().pod())
    scene.run(until_s=15)
    assert scene.evicted == ["uid-bare"]


def test_of_equals_the_one_leaves_that_saved_its_work_last() -> None:
    scene = full(offline("a", ran_s=100), offline("b", ran_s=9000, last_checkpoint=at(10)))
    scene.add_pod(online().pod())
    scene.run(until_s=15)
    assert scene.evicted == ["uid-b"]


def test_an_online_pod_goes_before_an_offline_one_of_its_priority_that_came_first() -> None:
    scene = full(online("running"))
    for name in ("first", "second"):
        scene.add_pod(replace(offline(name).pod(), start_time=""))
    scene.add_pod(online("late").pod())
    scene.run()
    scene.delete_pod("uid-running")
    scene.run(until_s=5)
    assert [uid for uid, _ in scene.bindings] == ["uid-late"]


def test_a_pod_that_is_judged_twice_stands_one_below_and_not_two() -> None:
    scene = full(offline("a"))
    scene.change_pod("uid-a", labels={"seen": "again"})
    scene.run()
    pod = scene.core.state.cluster.index.get("uid-a")
    assert pod is not None
    assert pod.priority == -1


@pytest.mark.parametrize(("minimum", "gone"), [(2, ["uid-g0", "uid-g1"]), (1, ["uid-g1"])])
def test_a_gang_that_would_break_is_preempted_after_lone_pods_and_whole(minimum: int, gone: list[str]) -> None:
    key = f"{GroupSource.PLUGINS.value}:default/g"
    group = PodGroup(key, GroupSource.PLUGINS, "default", "g", gang=True, min_count=minimum, priority=0)
    scene = full()
    scene.inbox.append(ObjectChanged("podgroups.scheduling.x-k8s.io", "default/g", group))
    for number in range(3):
        scene.add_node(make_node(f"n{number}").node())
    for number in range(2):
        scene.add_pod(replace(offline(f"g{number}", ran_s=10 - number).on(f"n{number}").pod(), group=key))
    scene.add_pod(offline("lone", ran_s=9000).on("n2").pod())
    scene.run()
    scene.add_pod(online("one").pod())
    scene.run(until_s=15)
    first = ["uid-lone"] if minimum == 2 else gone
    assert scene.evicted == first
    if minimum == 2:
        scene.add_pod(online("two").pod())
        scene.run(until_s=15)
        assert sorted(scene.evicted) == [*gone, *first]


def test_what_a_gang_can_spare_is_not_taken_twice_at_once() -> None:
    key = f"{GroupSource.PLUGINS.value}:default/g"
    group = PodGroup(key, GroupSource.PLUGINS, "default", "g", gang=True, min_count=2)
    scene = full()
    scene.inbox.append(ObjectChanged("podgroups.scheduling.x-k8s.io", "default/g", group))
    for number in range(5):
        scene.add_node(make_node(f"n{number}").node())
    for number in range(3):
        scene.add_pod(replace(offline(f"g{number}").on(f"n{number}").pod(), group=key))
    for number in range(2):
        scene.add_pod(offline(f"lone{number}").on(f"n{3 + number}").pod())
    scene.run()
    scene.keep_victims = True
    for number in range(3):
        scene.add_pod(online(f"one{number}").pod())
    scene.run(until_s=15)
    assert sorted(uid[4:5] for uid in scene.evicted) == ["g", "l", "l"]


def test_who_is_protected_is_preempted_once_its_time_is_over() -> None:
    scene = full(offline("a", ran_s=100), settings=replace_settings(130.0))
    scene.add_pod(online().pod())
    scene.run(until_s=29)
    assert not scene.evicted
    scene.run(until_s=3)
    assert scene.evicted == ["uid-a"]


def replace_settings(min_runtime_s: float) -> CoreSettings:
    return CoreSettings(validate=True, offline_preemption=True, offline_min_runtime_s=min_runtime_s)


@pytest.mark.parametrize("mark", [{}, {"koordinator.sh/qosClass": "BE"}])
@pytest.mark.parametrize("first", ["online", "offline"])
@pytest.mark.parametrize("gang", [False, True])
def test_what_is_known_of_an_online_pod_is_not_said_of_an_offline_one_nor_the_reverse(
    first: str, gang: bool, mark: dict[str, str]
) -> None:
    """They are of one class and priority, and differ in their QoS alone."""
    scene = full(online("running", priority=-10))
    scene.keep_victims = True
    lowly = offline("p", priority=100, owned=False).pod()
    if mark:
        lowly = make_pod("p").cpu("3").priority(100).set(labels=mark).pod()
    assert lowly.offline is not None
    pods = {"online": online("q", priority=100).pod(), "offline": replace(lowly, start_time="")}
    for name in sorted(pods, key=lambda name: name != first):
        pod = pods[name]
        if gang:
            key = f"{GroupSource.PLUGINS.value}:default/{name}"
            group = PodGroup(key, GroupSource.PLUGINS, "default", name, gang=True, min_count=1)
            scene.inbox.append(ObjectChanged("podgroups.scheduling.x-k8s.io", f"default/{name}", group))
            pod = replace(pod, group=key)
        scene.add_pod(pod)
    scene.run(batch=50, until_s=15)
    assert scene.evicted == ["uid-running"]
    assert [uid for uid, pod in scene.pods.items() if pod.nominated_node] == ["uid-q"]


def test_a_gang_of_which_one_member_is_offline_preempts_no_online_pod() -> None:
    scene = full(online("one"), online("two"))
    key = f"{GroupSource.PLUGINS.value}:default/g"
    group = PodGroup(key, GroupSource.PLUGINS, "default", "g", gang=True, min_count=2)
    scene.inbox.append(ObjectChanged("podgroups.scheduling.x-k8s.io", "default/g", group))
    scene.add_pod(replace(online("first", priority=100).pod(), group=key))
    scene.add_pod(replace(offline("second", priority=100, owned=False).pod(), group=key, start_time=""))
    scene.run(until_s=15)
    assert not scene.evicted


@pytest.mark.parametrize(
    ("stands", "waits", "ran_s", "told"),
    [
        (offline("a"), offline("p"), 0.0, ""),
        (online("a"), offline("p", priority=1000), 0.0, ""),
        (offline("a"), online("p"), 130.0, ""),
        (offline("a"), online("p"), 0.0, "would evict default/a from n0"),
        (offline("a"), offline("p", priority=1), 0.0, "would evict default/a from n0"),
    ],
    ids=["of its own", "an online one", "a protected one", "an online pod's equal", "below it"],
)
def test_what_is_explained_is_what_is_done(stands: PodBuilder, waits: PodBuilder, ran_s: float, told: str) -> None:
    scene = full(stands, settings=replace_settings(ran_s))
    scene.hold_plans = True
    scene.add_pod(replace(waits.pod(), start_time=""))
    scene.run(until_s=2)
    answer = explain(scene.core, replace(waits.pod(), start_time=""), {}, scene.now)["preemption"]
    asked = {eviction.uid for plan in scene.plans for eviction in plan.evictions}
    assert answer["summary"].startswith(told or "0/1 nodes are available")
    assert answer["helps"] is bool(told)
    assert asked == ({"uid-a"} if told else set())


@pytest.mark.parametrize("offline_member", [False, True])
def test_what_is_explained_of_a_gang_is_what_is_done(offline_member: bool) -> None:
    scene = full(online("one"), online("two"))
    scene.hold_plans = True
    key = f"{GroupSource.PLUGINS.value}:default/g"
    group = PodGroup(key, GroupSource.PLUGINS, "default", "g", gang=True, min_count=2)
    scene.inbox.append(ObjectChanged("podgroups.scheduling.x-k8s.io", "default/g", group))
    second = offline("second", priority=100, owned=False) if offline_member else online("second", priority=100)
    for pod in (online("first", priority=100), second):
        scene.add_pod(replace(pod.pod(), group=key, start_time=""))
    scene.run(until_s=2)
    asked = {eviction.uid for plan in scene.plans for eviction in plan.evictions}
    answer = explain_group(scene.core, "default", "g")
    assert answer is not None
    assert answer.now is not None
    assert answer.now.preemption is not None
    assert answer.now.preemption.helps is not offline_member
    assert asked == (set() if offline_member else {"uid-one", "uid-two"})
