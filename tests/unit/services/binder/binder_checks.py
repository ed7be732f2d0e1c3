"""Invariants of reliability.md as pure functions over what happened: each gives the violations it finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from shared.kube import objects as api
from shared.kube.pods.convert import node_from_api, pod_from_api
from shared.model.pod import Pod
from shared.model.resources import Resources, is_extended
from shared.wire.messages import PlacementResult
from shared.wire.records import Intent, IntentPod, gang_part
from tests.fake_kube import Bound, FakeKube
from tests.unit.services.binder.binder_world import Binder, Commitment, World


def named(intents: Mapping[str, Intent | None]) -> dict[str, list[IntentPod]]:
    """By pod, where live intents want it: a gang's counts once its head and all its links are there."""
    pods: dict[str, list[IntentPod]] = {}
    for key, intent in intents.items():
        part = gang_part(key)
        if intent is None or (part is not None and part[1]):
            continue
        values = [intent, *(intents.get(f"{key}:{link}") for link in range(1, intent.links + 1))]
        if None not in values:
            for pod in (pod for value in values if value is not None for pod in value.pods):
                pods.setdefault(pod.uid, []).append(pod)
    return pods


def check_i1(
    bound: Iterable[Bound], commitments: Iterable[Commitment], intents: Mapping[str, Intent | None] | None = None
) -> list[str]:
    """A pod is bound at most once, no two live intents name it, and no intent replaces another plan's."""
    times = Counter(entry.uid for entry in bound)
    violations = [f"I1: {uid} was bound {count} times" for uid, count in times.items() if count > 1]
    for entry in commitments:
        old, new = entry.replaced, entry.intent
        if old is not None and (old.plan_id, old.unit, old.coordinator_term) != (
            new.plan_id, new.unit, new.coordinator_term,
        ):  # fmt: skip
            violations.append(f"I1: two live intents of {[pod.uid for pod in new.pods]}")
    for uid, pods in named(intents or {}).items():
        if len(pods) > 1:
            violations.append(f"I1: two live intents name {uid}: {pods}")
    return violations


def offered(kube: FakeKube, node: str) -> Resources:
    return (
        node_from_api(msgspec.convert(kube.nodes[node], api.KubeNode)).allocatable
        if node in kube.nodes
        else Resources()
    )


def by_claim(pod: Pod, named_by: list[IntentPod] | None) -> set[str]:
    """The extended resources of a pod that a claim serves: as its status tells once it is bound, else as its intent
    names one."""
    if pod.node_name:
        return {one.resource for one in pod.extended_claim.mapped} if pod.extended_claim is not None else set()
    made = named_by is not None and any(claim.made for claim in named_by[0].claims)
    return {name for name, _ in pod.pod_class.requests if is_extended(name)} if made else set()


def check_i2(kube: FakeKube, intents: Mapping[str, Intent | None]) -> list[str]:
    """On every node, bound pods plus live intents of pending pods stay within allocatable, but for what a claim made
    for the pod serves on a node that offers none of it."""
    used: dict[str, Resources] = {}
    wanted = named(intents)
    for pod_json in kube.pods.values():
        name = pod_json["metadata"]["name"]
        found = kube.get_pod("default", name)
        assert found is not None
        pod = pod_from_api(found)
        node = pod.node_name or (wanted[pod.uid][0].node if pod.uid in wanted else "")
        if node and not pod.finished:
            requests = dict(pod.pod_class.requests)
            for resource in by_claim(pod, wanted.get(pod.uid)):
                if not offered(kube, node).get(resource):
                    requests.pop(resource, None)
            used[node] = used.get(node, Resources()).plus({**requests, "pods": 1})
    violations = []
    for name, amounts in used.items():
        if name not in kube.nodes:
            continue
        if not amounts.fits_into(offered(kube, name)):
            violations.append(f"I2: {name} holds {dict(amounts)} of {offered(kube, name)}")
    return violations


def check_i4(commitments: Iterable[Commitment]) -> list[str]:
    """Every intent was written under the term of who led the shard then, a new one also of the coordinator then."""
    violations = []
    for entry in commitments:
        if entry.intent.term != entry.binder_leader:
            violations.append(f"I4: binder term {entry.intent.term} wrote while {entry.binder_leader} led")
        if entry.replaced is None and entry.intent.coordinator_term != entry.coordinator_leader:
            violations.append(f"I4: a plan of {entry.intent.coordinator_term} while {entry.coordinator_leader} led")
    return violations


def check_i5(world: World, *, broken: bool = False) -> list[str]:
    """Of each gang none or at least its minimum stands now: bound, or named by a live intent (its own, or any for a
    gang that is known from its plan).

    A member that was deleted is not counted as missing. ``broken``: members may have been lost since the first was
    bound (nodes that changed, Bindings refused); then only gangs of which nobody is bound are looked at.
    """
    pods = {pod["metadata"]["uid"]: pod for pod in world.kube.pods.values()}
    bound = {uid for uid, pod in pods.items() if pod["spec"].get("nodeName")}
    intents = world.intents()
    violations = []
    for key, gang in world.gangs.items():
        own = {name: intent for name, intent in intents.items() if gang.planned or gang_of(name) == key}
        standing = gang.members & (bound | (named(own).keys() & pods.keys()))
        gone = gang.members - pods.keys()
        if (standing and len(standing | gone) < gang.min_count) and not (broken and standing & bound):
            violations.append(f"I5: {len(standing)} of {key} stand, {len(gone)} are gone, {gang.min_count} must")
    return violations


def gang_of(key: str) -> str:
    """The gang whose intent a key is a value of; "" for a lone pod's."""
    part = gang_part(key)
    return part[0] if part is not None else ""


def check_told(kube: FakeKube) -> list[str]:
    """No pod on a node says that it is not scheduled (ADR 0014)."""
    return [
        f"told: {key} runs on {pod['spec']['nodeName']} and says PodScheduled=False"
        for key, pod in kube.pods.items()
        if pod["spec"].get("nodeName") and "PodScheduled" in unscheduled(pod)
    ]


def unscheduled(pod: Mapping[str, Any]) -> list[str]:
    """Conditions that are False, by type."""
    return [c["type"] for c in pod["status"].get("conditions", ()) if c["status"] == "False"]


def check_i7(world: World, binder: Binder) -> list[str]:
    """At rest: no intent is left, and the cache holds what the API server shows."""
    violations = [f"I7: the intent of {key} is left" for key in world.intents()]
    shown = {
        pod["metadata"]["uid"]: pod["spec"]["nodeName"]
        for pod in world.kube.pods.values()
        if pod["spec"].get("nodeName")
    }
    counted = {uid: account.node_name for uid, account in binder.core.state.cache.accounts.items()}
    if shown != counted:
        violations.append(f"I7: shown {shown}, counted {counted}")
    if binder.core.state.in_flight:
        violations.append(f"I7: still on their way: {list(binder.core.state.in_flight)}")
    return violations


def check_all(world: World, binder: Binder | None = None, *, broken: bool = False) -> list[str]:
    """Every check that can be made now; with a binder, those at rest too. ``broken``: see ``check_i5``."""
    intents = world.intents()
    violations = check_i1(world.kube.bound, world.commitments, intents)
    violations += check_i2(world.kube, intents)
    violations += check_i4(world.commitments)
    violations += check_i5(world, broken=broken)
    violations += check_told(world.kube)
    return violations + (check_i7(world, binder) if binder is not None else [])


def outcome(binder: Binder, request: int) -> PlacementResult:
    """What became of the only placement of a plan."""
    [result] = binder.answers[request].results
    return result


def at_rest(world: World, binder: Binder) -> None:
    """Everything that was begun is done and the invariants hold."""
    world.settle(binder)
    assert check_all(world, binder) == []
