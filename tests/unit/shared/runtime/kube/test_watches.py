"""Watches become facts of a core: groups of three sources, and Jobs only once it is known what their namespaces say."""

from __future__ import annotations

from typing import Any

import msgspec

from shared.kube.device_objects import ResourceClaim
from shared.kube.objects import KubePod, ObjectMeta, PartialObject
from shared.kube.pod_groups import COMPLETION_INDEX, Job, PluginsPodGroup, PodGroupV1alpha2
from shared.kube.resources import DeletedObject, Malformed, MalformedObject, Upserted
from shared.kube.scheduling_kinds import DEVICE_CLAIMS, GROUP_KINDS, NATIVE_GROUPS, PLUGINS_GROUPS
from shared.model.cluster_events import ClusterEvent, Listed, ObjectChanged, ObjectUnreadable, PodUpserted
from shared.model.units.pod_group import GroupSource, PodGroup
from shared.runtime.kube.jobs import JobWatch
from shared.runtime.kube.reflector import Synced
from shared.runtime.kube.watches import object_events, pod_events
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.object_changes import GROUP_SOURCES, drop_object, put_object

META = {"name": "g", "namespace": "d", "uid": "u", "resourceVersion": "1"}


def test_each_kind_of_group_has_a_name_of_its_own_that_the_state_knows() -> None:
    assert {kind.name for kind in GROUP_KINDS} == GROUP_SOURCES.keys()


def test_groups_of_two_apis_with_one_name_are_two() -> None:
    native = msgspec.convert({"metadata": META, "spec": {"schedulingPolicy": {"basic": {}}}}, PodGroupV1alpha2)
    plugins = msgspec.convert({"metadata": META, "spec": {"minMember": 2}}, PluginsPodGroup)
    state = ClusterState()
    for kind, item in ((NATIVE_GROUPS, native), (PLUGINS_GROUPS, plugins)):
        [change] = object_events(kind, [Upserted(item)])
        assert isinstance(change, ObjectChanged)
        put_object(state, change.kind, change.key, change.item)
    assert state.pod_groups.keys() == {"podgroup:d/g", "x-podgroup:d/g"}
    [change] = object_events(PLUGINS_GROUPS, [DeletedObject(plugins)])
    assert isinstance(change, ObjectChanged)
    drop_object(state, change.kind, change.key)
    assert state.pod_groups.keys() == {"podgroup:d/g"}


def test_a_claim_that_cannot_be_read_any_more_stays_as_it_was_until_it_is_gone() -> None:
    asked: dict[str, Any] = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}
    good = msgspec.convert({"metadata": META, "spec": {"devices": asked}}, ResourceClaim)
    asked["requests"][0]["exactly"]["capacity"] = {"requests": {"memory": "much"}}
    bad = msgspec.convert({"metadata": META, "spec": {"devices": asked}}, ResourceClaim)
    garbled = MalformedObject("ResourceClaim", "d", "g", "u", "2", "garbled")
    [change] = object_events(DEVICE_CLAIMS, [Upserted(good)])
    assert isinstance(change, ObjectChanged)
    assert change.item is not None
    stays = [ObjectUnreadable("resourceclaims", "d/g", version) for version in (META["resourceVersion"], "2")]
    assert object_events(DEVICE_CLAIMS, [Upserted(bad), Malformed(garbled)]) == stays
    gone = [ObjectChanged("resourceclaims", "d/g", None)]
    assert object_events(DEVICE_CLAIMS, [Malformed(garbled, deleted=True)]) == gone
    assert object_events(DEVICE_CLAIMS, [DeletedObject(bad)]) == gone


def job(name: str = "j", mode: str = "Indexed", **annotations: str) -> Upserted[Any]:
    spec = {"completionMode": mode, "parallelism": 2, "completions": 2}
    meta = {"name": name, "namespace": "d", "uid": name, "annotations": annotations}
    return Upserted(msgspec.convert({"metadata": meta, "spec": spec}, Job))


def namespace(gang: str | None = None) -> Upserted[Any]:
    annotations = {"conclave.io/gang": gang} if gang is not None else None
    return Upserted(PartialObject(ObjectMeta(name="d", uid="d", annotations=annotations)))


class Watched:
    """A JobWatch and what it posts."""

    def __init__(self) -> None:
        self.posted: list[ClusterEvent] = []
        self.watch = JobWatch(self.posted.extend)

    def jobs(self, *batch: Any) -> list[Any]:
        self.watch._take(batch)
        return self.heard()

    def namespaces(self, *batch: Any) -> list[Any]:
        self.watch.saw_namespaces(batch)
        return self.heard()

    def heard(self) -> list[Any]:
        """Listed as such; of a Job whether it is a gang, None when it is gone."""
        found: list[Any] = []
        for event in self.posted:
            if isinstance(event, ObjectChanged):
                assert event.kind == "jobs"
                found.append((event.key, event.item.gang if isinstance(event.item, PodGroup) else None))
            else:
                found.append(event)
        self.posted.clear()
        return found


def test_jobs_are_listed_when_their_namespaces_are_too() -> None:
    seen = Watched()
    assert seen.jobs(job(), Synced("1")) == []
    assert seen.namespaces(namespace("true")) == [("d/j", True)]
    assert seen.namespaces(Synced("1")) == [Listed("jobs")]
    other = Watched()
    assert other.namespaces(namespace(), Synced("1")) == []
    assert other.jobs(job(), Synced("1")) == [("d/j", False), Listed("jobs")]
    assert other.namespaces(Synced("1")) == []


def test_a_namespace_opts_its_jobs_in_and_out() -> None:
    seen = Watched()
    seen.namespaces(namespace(), Synced("1"))
    seen.jobs(job(), job("plain", "NonIndexed"), Synced("1"))
    assert seen.namespaces(namespace("true")) == [("d/j", True)]
    assert seen.namespaces(namespace("true")) == []
    assert seen.namespaces(namespace("false")) == [("d/j", False)]


def test_a_job_that_goes_or_cannot_be_read_any_more_is_gone() -> None:
    seen = Watched()
    seen.namespaces(namespace("true"), Synced("1"))
    seen.jobs(job(), job("k"), Synced("1"))
    assert seen.jobs(DeletedObject(job().object)) == [("d/j", None)]
    assert seen.jobs(Malformed(MalformedObject("Job", "d", "k", "k", "2", "bad"))) == [("d/k", None)]


def test_pods_of_jobs_that_may_not_be_read_are_in_no_group() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    indexed = {"metadata": {"name": "p", "namespace": "d", "uid": "p", "ownerReferences": [owner]}, "spec": {}}
    indexed["metadata"]["labels"] = {COMPLETION_INDEX: "0"}
    native = {"metadata": {"name": "q", "namespace": "d", "uid": "q"}, "spec": {}}
    native["spec"] = {"schedulingGroup": {"podGroupName": "g"}}
    batch = [Upserted(msgspec.convert(one, KubePod)) for one in (indexed, native)]

    def groups(**how: bool) -> list[str]:
        return [event.pod.group for event in pod_events(batch, **how) if isinstance(event, PodUpserted)]

    assert groups() == [f"{GroupSource.JOB.value}:d/j", "podgroup:d/g"]
    assert groups(job_groups=False) == ["", "podgroup:d/g"]
