"""A corner of a scenario's cluster: nodes, groups and pods of one case, which no other case may use.

A mesh costs seconds to start, a case often less than one. So several cases run side by side in one mesh, each in its
corner: nodes carry its label, pods select it, names begin with its name. ``all_of`` runs them and tells each failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from tests.process.mesh import ROOT
from tests.scenarios.invariants import node_of, phase_of
from tests.scenarios.world import MERGE, PODS, Json, World

Case = Callable[[Any], Awaitable[None]]
TOGETHER_S = 20.0
"""Within so long a gang that fits is bound: a bound for a loaded machine, nothing that a case is about."""
PLUGINS_KIND = ROOT / "k8s" / "components" / "plugins-pod-groups" / "pod-groups.yaml"
PLUGINS = "scheduling.x-k8s.io/v1alpha1"
MEMBER = "scheduling.x-k8s.io/pod-group"
STILL_S = 1.5
"""So long nothing must happen."""


async def all_of(cluster: World, *cases: Case, corner: type[Corner] | None = None) -> None:
    """Each case in a corner of its own, all at once; all failures together. ``corner``: of this kind."""
    kind = corner or Corner
    corners = [kind(cluster, case.__name__.removeprefix("a_").replace("_", "-")[:40].rstrip("-")) for case in cases]
    found = await asyncio.gather(
        *(case(corner) for case, corner in zip(cases, corners, strict=True)), return_exceptions=True
    )
    failures = []
    for case, one in zip(cases, found, strict=True):
        if isinstance(one, Exception):
            one.add_note(f"in the case {case.__name__}")
            failures.append(one)
        elif isinstance(one, BaseException):
            raise one
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(cases)} cases failed", failures)


class Corner:
    """``name``: what everything of this case begins with."""

    def __init__(self, cluster: World, name: str) -> None:
        self.cluster = cluster
        self.name = name

    def full(self, name: str) -> str:
        """The name in the cluster."""
        return f"{self.name}-{name}"

    # --- what is made -----------------------------------------------------------------------------------------------

    async def node(self, name: str, *, cpu: str = "4", **labels: str) -> str:
        """One node of this corner; its name in the cluster."""
        await self.cluster.add_node(self.full(name), cpu=cpu, labels={"corner": self.name, **labels})
        return self.full(name)

    async def nodes(self, count: int, *, cpu: str = "4", racks: int = 0) -> list[str]:
        """Several; in so many racks, one after the other."""
        wanted = (
            self.node(f"n{number}", cpu=cpu, **({"rack": self.full(f"r{number % racks}")} if racks else {}))
            for number in range(count)
        )
        return list(await asyncio.gather(*wanted))

    async def group(
        self, name: str, minimum: int | None, *, topology: str = "", whole: bool = False,
        annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None, **more: Any,
    ) -> None:  # fmt: skip
        """A native PodGroup in the version that is served; ``minimum`` None: the policy basic."""
        spec: Json = {"schedulingPolicy": {"basic": {}} if minimum is None else {"gang": {"minCount": minimum}}, **more}
        if topology:
            spec["schedulingConstraints"] = {"topology": [{"key": topology}]}
        if whole:
            spec["disruptionMode"] = {"all": {}} if self.beta else "PodGroup"
        metadata = {"annotations": annotations or {}, "labels": labels or {}}
        await self.cluster.create(
            self._groups(), "PodGroup", self.full(name), api=self.cluster.groups_api.removeprefix("/apis/"),
            metadata=metadata, spec=spec,
        )  # fmt: skip

    @property
    def beta(self) -> bool:
        """Whether the version of 1.37 is served."""
        return self.cluster.groups_api.endswith("v1beta1")

    def _groups(self) -> str:
        return f"{self.cluster.groups_api}/namespaces/default/podgroups"

    async def change_group(self, name: str, patch: Json) -> None:
        await self.cluster.call("PATCH", f"{self._groups()}/{self.full(name)}", patch, MERGE)

    async def delete_group(self, name: str) -> None:
        await self.cluster.call("DELETE", f"{self._groups()}/{self.full(name)}")

    async def pod(self, name: str, *, group: str = "", **pod: Any) -> str:
        """A pod of this corner, a member of ``group`` where that is given; its name in the cluster."""
        if group:
            self._join(group, pod)
        pod["nodeSelector"] = {"corner": self.name, **pod.get("nodeSelector", {})}
        pod.setdefault("cpu", "1")
        await self.cluster.add_pod(self.full(name), **pod)
        return self.full(name)

    def _join(self, group: str, pod: Json) -> None:
        """Make it a member."""
        pod["schedulingGroup"] = {"podGroupName": self.full(group)}

    async def pods(self, prefix: str, count: int, *, first: int = 0, **pod: Any) -> list[str]:
        """So many alike, all at once."""
        names = [f"{prefix}-{number}" for number in range(first, first + count)]
        return list(await asyncio.gather(*(self.pod(name, **dict(pod)) for name in names)))

    async def gang(self, name: str, size: int, *, minimum: int | None = None, **pod: Any) -> list[str]:
        """A group of the minimum ``size`` unless told otherwise, and its members; their names in the cluster."""
        importance = {"priorityClassName": pod["priorityClassName"]} if "priorityClassName" in pod else {}
        await self.group(name, size if minimum is None else minimum, **importance)
        return await self.pods(name, size, group=name, **pod)

    async def delete(self, *names: str) -> None:
        """Pods, by their names in the cluster; at once."""
        await asyncio.gather(*(self.cluster.delete_pod_if_there(name) for name in names))

    async def linger(self, *names: str) -> None:
        """These pods stay, terminating, until they are released."""
        patch = {"metadata": {"finalizers": ["conclave.test/linger"]}}
        await asyncio.gather(*(self.cluster.call("PATCH", f"{PODS}/{name}", patch, MERGE) for name in names))

    # --- what is seen -----------------------------------------------------------------------------------------------

    def bound(self, names: Iterable[str]) -> list[str]:
        """Those of them that hold a node and have not finished."""
        pods = self.cluster.pods
        return [
            name for name in names
            if name in pods and node_of(pods[name]) and phase_of(pods[name]) not in ("Succeeded", "Failed")
        ]  # fmt: skip

    def told(self, name: str) -> str:
        """What the pod says of why it waits."""
        return self.cluster.told(name)

    def condition(self, group: str) -> Json:
        """The group's scheduling condition, empty where it has none."""
        found = self.cluster.groups.get(self.full(group), {})
        for one in (found.get("status") or {}).get("conditions") or ():
            if one["type"] in ("PodGroupScheduled", "PodGroupInitiallyScheduled"):
                return dict(one)
        return {}

    async def until(self, holds: Callable[[], Any], what: str, within_s: float = TOGETHER_S) -> None:
        """As the world's; ``what`` is told with the corner's name."""
        await self.cluster.until(lambda _: bool(holds()), within_s=within_s, what=f"{self.name}: {what}")

    async def all_bound(
        self, names: Iterable[str], what: str = "all of it is bound", within_s: float = TOGETHER_S
    ) -> None:
        names = list(names)
        await self.until(lambda: len(self.bound(names)) == len(names), what, within_s)

    async def none_bound(self, names: Iterable[str], for_s: float = STILL_S) -> None:
        """For so long nobody of them is."""
        names = list(names)
        await self.cluster.never(lambda _: bool(self.bound(names)), for_s=for_s, what=f"{self.name}: one was bound")

    def leaving(self, name: str) -> bool:
        """Whether the pod was asked to leave, or has left."""
        pod = self.cluster.pods.get(name)
        return pod is None or bool(pod["metadata"].get("deletionTimestamp"))

    async def all_told(self, names: Iterable[str], what: str = "each says why it waits") -> None:
        names = list(names)
        await self.until(lambda: all(self.told(name) for name in names), what)

    def domains(self, names: Iterable[str]) -> set[str]:
        """The nodes that pods hold."""
        return {self.cluster.node(name) for name in names}


class Older(Corner):
    """A corner whose groups are those of the scheduler plug-ins (``PLUGINS_KIND``)."""

    async def group(self, name: str, minimum: int | None, **group: Any) -> None:
        metadata = {key: group.pop(key) for key in ("annotations", "labels") if key in group}
        group.pop("priorityClassName", None)  # such a group has none: its members' count
        await self.cluster.create(
            f"/apis/{PLUGINS}/namespaces/default/podgroups", "PodGroup", self.full(name), api=PLUGINS,
            metadata=metadata, spec={"minMember": minimum, **group},
        )  # fmt: skip

    def _join(self, group: str, pod: Json) -> None:
        pod["labels"] = {**pod.get("labels", {}), MEMBER: self.full(group)}


async def priority_classes(cluster: World, **values: int) -> None:
    """Classes by name."""
    for name, value in values.items():
        await cluster.create(
            "/apis/scheduling.k8s.io/v1/priorityclasses", "PriorityClass", name, api="scheduling.k8s.io/v1", value=value
        )


async def release(cluster: World, name: str) -> None:
    """Take the finalizers off a pod that is leaving: it is gone."""
    await cluster.call("PATCH", f"{PODS}/{name}", {"metadata": {"finalizers": None}}, MERGE)
