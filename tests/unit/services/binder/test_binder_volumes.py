"""Volumes in the binder: checked again before the commit, bound before the pod is."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from services.binder.core.core import BinderCore
from services.binder.core.events import Committed, Event, IntentsListed, PlanReceived, StoredIntent
from services.binder.core.instructions import Bind, Commit, Instruction, MarkPod, PatchObject, PlanAnswer
from services.binder.core.state import BinderCoreSettings
from services.binder.cycle.volumes import NOT_IN_TIME
from shared.model.cluster_events import Listed, NodeUpserted, ObjectChanged, PodUpserted
from shared.model.cluster_objects import PersistentVolume, StorageClass, VolumeClaim
from shared.model.constraints import Requirement, SelectorTerm
from shared.model.pod import Pod
from shared.wire.keys import Keys
from shared.wire.messages import VERSION, Gang, Outcome, Placement, Plan
from shared.wire.records import Intent, IntentPod
from tests.builders import make_node, make_pod
from tests.unit.services.binder.ablations import without_the_check, without_the_gate

CLAIM = VolumeClaim("default/data", uid="uid-c", class_name="slow", storage_bytes=10, resource_version="7")
SLOW = StorageClass("slow", provisioner="disks.example", delayed=True)


def with_claim(name: str = "a") -> Pod:
    pod = make_pod(name).cpu("1")
    pod.json["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    return pod.pod()


def changed(claim: VolumeClaim) -> ObjectChanged:
    return ObjectChanged("persistentvolumeclaims", claim.key, claim)


def binder(*objects: ObjectChanged, settings: BinderCoreSettings | None = None) -> BinderCore:
    core = BinderCore(5, settings or BinderCoreSettings(), Keys("/c"))
    nodes = [NodeUpserted(make_node(f"n{n}").label(**{"kubernetes.io/hostname": f"n{n}"}).node()) for n in range(2)]
    lists: list[Event] = [Listed("pods"), Listed("nodes"), IntentsListed({})]
    core.handle_all([*nodes, *objects, PodUpserted(with_claim()), *lists], 0.0)
    return core


def placed(core: BinderCore, node: str = "n0") -> list[Instruction]:
    """The plan is sent; what follows until its intent is committed."""
    placement = Placement(1, "uid-a", "default", "a", "1", node)
    told = core.handle(PlanReceived(1, Plan(VERSION, 1, 0, 3, 1, [placement])), 1.0)
    commits = [i for i in told if isinstance(i, Commit)]
    return core.handle(Committed(commits[0].batch, 9), 1.1) if commits else told


def outcomes(told: list[Instruction]) -> list[int]:
    return [result.outcome for i in told if isinstance(i, PlanAnswer) for result in i.result.results]


def marks(told: list[Instruction]) -> list[str]:
    return [instruction.message for instruction in told if isinstance(instruction, MarkPod)]


def test_a_claim_that_waits_for_its_consumer_is_given_the_node_and_the_binding_waits_for_it() -> None:
    core = binder(ObjectChanged("storageclasses", "slow", SLOW), changed(CLAIM))
    told = placed(core)
    assert [i for i in told if isinstance(i, Bind)] == []
    (write,) = [i for i in told if isinstance(i, PatchObject)]
    assert (write.kind, write.namespace, write.name) == ("persistentvolumeclaims", "default", "data")
    assert write.patch["metadata"] == {
        "annotations": {"volume.kubernetes.io/selected-node": "n0"},
        "resourceVersion": "7",
    }
    told = core.handle(changed(replace(CLAIM, selected_node="n0", resource_version="8")), 2.0)
    assert not [i for i in told if isinstance(i, Bind | PatchObject)], "asked for once"
    volume = PersistentVolume("pv", class_name="slow", claim=("default/data", "uid-c"))
    bound = replace(CLAIM, selected_node="n0", volume_name="pv", bind_completed=True)
    told = core.handle_all([ObjectChanged("persistentvolumes", "pv", volume), changed(bound)], 3.0)
    assert [i.request.node_name for i in told if isinstance(i, Bind)] == ["n0"]


def test_a_free_volume_that_the_node_reaches_is_reserved_for_the_claim() -> None:
    term = SelectorTerm((Requirement("kubernetes.io/hostname", "In", ("n1",)),))
    volume = PersistentVolume(
        "local", class_name="slow", capacity_bytes=10, affinity=(term,), available=True, resource_version="3"
    )
    none = replace(SLOW, provisioner="kubernetes.io/no-provisioner")
    objects = (
        ObjectChanged("storageclasses", "slow", none),
        ObjectChanged("persistentvolumes", "local", volume),
        changed(CLAIM),
    )
    (write,) = [i for i in placed(binder(*objects), "n1") if isinstance(i, PatchObject)]
    assert (write.kind, write.name) == ("persistentvolumes", "local")
    assert write.patch["spec"]["claimRef"]["uid"] == "uid-c"
    assert write.patch["metadata"]["resourceVersion"] == "3"
    assert outcomes(placed(binder(*objects), "n0")) == [Outcome.CONFLICT], "n0 does not reach it"


def test_volumes_that_are_not_bound_in_time_give_the_unit_back() -> None:
    settings = BinderCoreSettings(volumes_wait_s=10, answer_after_s=60)
    core = binder(ObjectChanged("storageclasses", "slow", SLOW), changed(CLAIM), settings=settings)
    placed(core)
    assert outcomes(core.handle_all((), 8.0)) == []
    told = core.handle_all((), 11.0)
    assert outcomes(told) == [Outcome.REFUSED]
    assert marks(told) == [NOT_IN_TIME]
    assert "uid-a" not in core.state.cache.accounts


def test_a_pod_that_waits_for_its_volumes_says_so_once_and_is_bound_at_its_newer_version() -> None:
    core = binder(
        ObjectChanged("storageclasses", "slow", SLOW), changed(CLAIM), settings=BinderCoreSettings(answer_after_s=60)
    )
    placed(core)
    assert core.wake_at == 3.0, "2 s after it came"
    assert marks(core.handle_all((), 3.0)) == ['waiting for persistentvolumeclaim(s) "data" to be bound for node n0']
    assert marks(core.handle_all((), 9.0)) == []
    volume = PersistentVolume("pv", class_name="slow", claim=("default/data", "uid-c"))
    bound = replace(CLAIM, selected_node="n0", volume_name="pv", bind_completed=True)
    told = core.handle_all([ObjectChanged("persistentvolumes", "pv", volume), changed(bound)], 10.0)
    assert [i.request.uid for i in told if isinstance(i, Bind)] == ["uid-a"]


def test_a_claim_of_one_pod_in_use_is_a_conflict() -> None:
    once = replace(
        CLAIM, access_modes=frozenset({"ReadWriteOncePod"}), volume_name="pv", bind_completed=True
    )  # fmt: skip
    core = binder(ObjectChanged("persistentvolumes", "pv", PersistentVolume("pv")), changed(once))
    core.handle(PodUpserted(replace(with_claim("other"), node_name="n1")), 0.5)
    assert outcomes(placed(core)) == [Outcome.CONFLICT]


def test_without_the_check_the_same_claim_is_given_to_two_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation."""
    once = replace(
        CLAIM, access_modes=frozenset({"ReadWriteOncePod"}), volume_name="pv", bind_completed=True
    )  # fmt: skip
    without_the_check(monkeypatch)
    core = binder(ObjectChanged("persistentvolumes", "pv", PersistentVolume("pv")), changed(once))
    core.handle(PodUpserted(replace(with_claim("other"), node_name="n1")), 0.5)
    assert [i for i in placed(core) if isinstance(i, Bind)]


def test_a_unit_that_waits_for_its_volumes_is_given_back_when_its_node_is_closed() -> None:
    core = binder(ObjectChanged("storageclasses", "slow", SLOW), changed(CLAIM))
    placed(core)
    cordoned = make_node("n0").label(**{"kubernetes.io/hostname": "n0"}).cordon().node()
    assert outcomes(core.handle(NodeUpserted(cordoned), 1.5)) == [Outcome.CONFLICT]


def local(claim: tuple[str, str] | None = None) -> ObjectChanged:
    """The only volume of a class of which none can be made."""
    term = SelectorTerm((Requirement("kubernetes.io/hostname", "In", ("n1",)),))
    volume = PersistentVolume(
        "local", class_name="slow", capacity_bytes=10, affinity=(term,), available=claim is None, claim=claim,
        resource_version="3",
    )  # fmt: skip
    return ObjectChanged("persistentvolumes", "local", volume)


def test_a_unit_whose_volume_another_claim_got_is_given_back_and_its_claim_selects_no_node() -> None:
    """A claim that selects a node where no volume can be made would fit nowhere any more."""
    none = ObjectChanged("storageclasses", "slow", replace(SLOW, provisioner="kubernetes.io/no-provisioner"))
    core = binder(none, local(), changed(CLAIM), settings=BinderCoreSettings(answer_after_s=60))
    placed(core, "n1")
    told = core.handle(local(("default/other", "uid-o")), 2.0)
    assert not [i for i in told if isinstance(i, PatchObject)]
    assert outcomes(told) == [Outcome.CONFLICT]


def test_a_pod_whose_claim_was_deleted_while_it_waited_is_not_bound() -> None:
    core = binder(
        ObjectChanged("storageclasses", "slow", SLOW), changed(CLAIM), settings=BinderCoreSettings(answer_after_s=60)
    )
    placed(core)
    told = core.handle(ObjectChanged("persistentvolumeclaims", CLAIM.key, None), 2.0)
    assert not [i for i in told if isinstance(i, Bind)]
    assert outcomes(told) == [Outcome.CONFLICT]


def test_a_unit_is_given_back_when_the_provisioner_rejects_its_node() -> None:
    """It does so by taking the selected node off the claim (kube-scheduler ``checkBindings``)."""
    core = binder(
        ObjectChanged("storageclasses", "slow", SLOW), changed(CLAIM), settings=BinderCoreSettings(answer_after_s=60)
    )
    placed(core)
    core.handle(changed(replace(CLAIM, selected_node="n0", resource_version="8")), 2.0)
    told = core.handle(changed(replace(CLAIM, resource_version="9")), 3.0)
    assert not [i for i in told if isinstance(i, PatchObject)]
    assert outcomes(told) == [Outcome.CONFLICT]


def taking_over(*kinds: str) -> tuple[BinderCore, list[Instruction]]:
    """A new leader has everything but the lists of ``kinds``; an intent is left for a pod that waits for its claim."""
    core = BinderCore(6, BinderCoreSettings(), Keys("/c"), kinds=kinds)
    pod = IntentPod(uid="uid-a", ns="default", name="a", rv="1", node="n0", devices=())
    intent = Intent(plan_id=1, coordinator_term=3, unit=1, pods=(pod,), term=5, policy="")
    told = core.handle_all(
        [
            NodeUpserted(make_node("n0").node()),
            PodUpserted(with_claim()),
            Listed("pods"),
            Listed("nodes"),
            IntentsListed({"uid-a": StoredIntent(intent, 9)}),
        ],
        0.0,
    )
    return core, told


def test_a_new_leader_judges_no_intent_before_it_knows_the_claims() -> None:
    core, told = taking_over("persistentvolumeclaims")
    assert not marks(told)
    core.handle_all([ObjectChanged("storageclasses", "slow", SLOW), changed(CLAIM)], 0.1)
    told = core.handle(Listed("persistentvolumeclaims"), 0.2)
    assert not marks(told), "withdrawn"
    assert [i.name for i in told if isinstance(i, PatchObject)] == ["data"]


def test_a_new_leader_waits_for_lists_that_do_not_come_no_longer_than_its_grace() -> None:
    core, _ = taking_over("persistentvolumeclaims")
    assert core.wake_at == BinderCoreSettings().takeover_grace_s
    assert marks(core.handle_all((), BinderCoreSettings().takeover_grace_s))


def test_without_the_wait_a_unit_that_waits_for_its_claim_is_withdrawn() -> None:
    """Ablation."""
    _, told = taking_over()
    assert marks(told)


def gang_with_a_claim() -> tuple[BinderCore, list[Instruction]]:
    """A gang of two that needs both; the first has to wait for its volume. What follows until it is committed."""
    core = binder(ObjectChanged("storageclasses", "slow", SLOW), changed(CLAIM))
    core.handle(PodUpserted(make_pod("b").cpu("1").pod()), 0.5)
    placements = [Placement(1, "uid-a", "default", "a", "1", "n0"), Placement(2, "uid-b", "default", "b", "1", "n0")]
    plan = Plan(VERSION, 1, 0, 3, 1, placements, [], [Gang(3, "podgroup:default/g", [1, 2], 2)])
    [commit] = [i for i in core.handle(PlanReceived(1, plan), 1.0) if isinstance(i, Commit)]
    return core, core.handle(Committed(commit.batch, 9), 1.1)


def test_no_member_of_a_gang_is_bound_before_the_minimum_has_its_volumes() -> None:
    core, told = gang_with_a_claim()
    assert [type(i) for i in told] == [PatchObject]
    volume = PersistentVolume("pv", class_name="slow", claim=("default/data", "uid-c"))
    bound = replace(CLAIM, selected_node="n0", volume_name="pv", bind_completed=True)
    told = core.handle_all([ObjectChanged("persistentvolumes", "pv", volume), changed(bound)], 3.0)
    assert [i.request.name for i in told if isinstance(i, Bind)] == ["a"]


def test_ablation_without_the_gate_a_member_is_bound_before_the_others_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    without_the_gate(monkeypatch)
    assert [i.request.name for i in gang_with_a_claim()[1] if isinstance(i, Bind)] == ["b"]


def test_a_gang_whose_volumes_do_not_come_in_time_is_given_back_whole() -> None:
    core, sent = gang_with_a_claim()
    while core.state.in_flight:
        assert core.wake_at is not None
        sent += core.handle_all((), core.wake_at)
    assert not [i for i in sent if isinstance(i, Bind)]
    assert core.state.cache.accounts == {}
