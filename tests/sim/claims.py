"""Devices for the mesh in memory: who publishes them, who makes claims and frees them, and what must hold.

The claim controller is Kubernetes' own as far as pods go: a template's claim is made, a pod that is gone leaves its
claims, and what nobody uses any more is free. The checkers read objects as the API server has them, and nothing else.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from shared.kube.pod_groups import GROUP_LABEL
from shared.kube.pods.convert_devices import EXTENDED_CLAIM
from shared.kube.scheduling_kinds import DEVICE_CLAIMS, DEVICE_KINDS, NATIVE_GROUPS
from tests.builders import make_pod
from tests.fake_kube import FakeKube, copy

DRIVER, CLASS, FINALIZER = "gpu.example.com", "gpu", "resource.kubernetes.io/delete-protection"
CLASSES, SLICES, CLAIMS, TAINT_RULES = DEVICE_KINDS
Json = dict[str, Any]


RESOURCE = "example.com/gpu"
"""An extended resource that a class stands for, where ``add_class`` is told so."""

IMPLICIT = f"deviceclass.resource.kubernetes.io/{CLASS}"


def add_class(kube: FakeKube, name: str = CLASS, *, resource: str = "") -> None:
    spec: Json = {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}
    if resource:
        spec["extendedResourceName"] = resource
    kube.put_object(CLASSES, {"metadata": {"name": name}, "spec": spec})


def add_devices(kube: FakeKube, node: str, count: int, device: Json | None = None, **spec: Any) -> None:
    """A pool of a node's own. ``device``: further fields of each; ``spec``: its reach instead, where several see it."""
    kube.put_object(SLICES, {
        "metadata": {"name": f"{node}-slice"},
        "spec": {
            "driver": DRIVER, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"d{number}", **(device or {})} for number in range(count)],
            **(spec or {"nodeName": node}),
        },
    })  # fmt: skip


def add_claim(
    kube: FakeKube, name: str, *, count: int = 1, owner: Json | None = None, kind: str = "Pod"
) -> None:  # fmt: skip
    """A claim for so many devices; ``owner``: metadata of the pod, or the group, that it is made for."""
    asked = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": count}
    meta: Json = {"name": name, "namespace": "default"}
    if owner is not None:
        meta["ownerReferences"] = [{"kind": kind, "name": owner["name"], "uid": owner["uid"], "controller": True}]
    spec = {"devices": {"requests": [{"name": "r", "exactly": asked}]}}
    kube.put_object(DEVICE_CLAIMS, {"metadata": meta, "spec": spec, "status": {}})


def add_claiming(
    kube: FakeKube,
    name: str,
    *,
    cpu: str = "100m",
    claim: str = "",
    count: int = 1,
    scheduler: str = "conclave",
    group: str = "",
) -> str:
    """A pod with a claim of its own, by a template for ``count`` devices, or with one that is there already."""
    pod = make_pod(name).cpu(cpu)
    pod.json["spec"]["schedulerName"] = scheduler
    if group:
        pod.set(labels={GROUP_LABEL: group})
    pod.json["spec"]["resourceClaims"] = [{"name": "gpu", **_source(claim, count)}]
    return kube.add_pod(pod)


def add_group(kube: FakeKube, name: str, *, minimum: int = 0, claim: str = "", count: int = 1) -> str:
    """A PodGroup of Kubernetes' own (a gang, where it has a minimum) with a claim for all members, by a template for
    ``count`` devices, or with one that is there already; its uid."""
    policy: Json = {"gang": {"minCount": minimum}} if minimum else {"basic": {}}
    spec = {"schedulingPolicy": policy, "resourceClaims": [{"name": "gpu", **_source(claim, count)}]}
    return kube.put_object(
        NATIVE_GROUPS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec, "status": {}}
    )


def add_member(
    kube: FakeKube, name: str, group: str, *, cpu: str = "100m", claim: str = "", count: int = 1
) -> str:  # fmt: skip
    """A pod of such a group that names its claim as the group does."""
    pod = make_pod(name).cpu(cpu)
    pod.json["spec"] |= {
        "schedulerName": "conclave",
        "schedulingGroup": {"podGroupName": group},
        "resourceClaims": [{"name": "gpu", **_source(claim, count)}],
    }
    return kube.add_pod(pod)


def _source(claim: str, count: int) -> Json:
    return {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": f"for-{count}"}


def group_of(kube: FakeKube, pod: Json) -> Json:
    """The pod's PodGroup as the API server has it; nothing of one where it has none."""
    name = pod["spec"].get("schedulingGroup", {}).get("podGroupName")
    found: Json = kube.objects.get("podgroups", {}).get(f"default/{name}", {"metadata": {"uid": ""}, "spec": {}})
    return found


def add_requesting(
    kube: FakeKube, name: str, *, cpu: str = "100m", count: int = 1, resource: str = RESOURCE, group: str = "",
    scheduler: str = "conclave",
) -> str:  # fmt: skip
    """A pod whose container requests so many of an extended resource."""
    pod = make_pod(name).cpu(cpu).request(**{resource: str(count)})
    pod.json["spec"]["schedulerName"] = scheduler
    if group:
        pod.set(labels={GROUP_LABEL: group})
    return kube.add_pod(pod)


def made_for(kube: FakeKube, name: str) -> list[Json]:
    """The claims that a scheduler made for a pod's extended resources."""
    uid = kube.pods[f"default/{name}"]["metadata"]["uid"]
    return [
        claim
        for claim in kube.objects.get("resourceclaims", {}).values()
        if EXTENDED_CLAIM in claim["metadata"].get("annotations", {})
        and claim["metadata"]["ownerReferences"][0]["uid"] == uid
    ]


def control_claims(kube: FakeKube) -> None:
    """What the claim controller does about everything that there is."""
    for pod in list(kube.pods.values()):
        told = {one["name"] for one in pod["status"].get("resourceClaimStatuses", ())}
        for one in pod["spec"].get("resourceClaims", ()):
            template = one.get("resourceClaimTemplateName")
            if template and one["name"] not in told and not pod["spec"].get("nodeName"):
                group = group_of(kube, pod)
                shared = one in group["spec"].get("resourceClaims", ())
                if not shared and "schedulingGroup" in pod["spec"] and not group["metadata"]["uid"]:
                    continue  # nobody knows whose it is
                owner = (group if shared else pod)["metadata"]
                name, found = f"{owner['name']}-{one['name']}", kube.objects.get("resourceclaims", {})
                if f"default/{name}" not in found:
                    kind = "PodGroup" if shared else "Pod"
                    add_claim(kube, name, count=int(template.removeprefix("for-")), owner=owner, kind=kind)
                elif found[f"default/{name}"]["metadata"]["ownerReferences"][0]["uid"] != owner["uid"] or not shared:
                    continue  # that of a pod, or a group, of this name before
                changed = copy(pod)
                changed["status"]["resourceClaimStatuses"] = [{"name": one["name"], "resourceClaimName": name}]
                kube._store_pod(changed)
    uids = {pod["metadata"]["uid"] for pod in kube.pods.values() if pod["status"].get("phase") not in ENDED}
    uids |= {group["metadata"]["uid"] for group in kube.objects.get("podgroups", {}).values()}
    for key, claim in list(kube.objects.get("resourceclaims", {}).items()):
        _control_claim(kube, key, claim, uids)


ENDED = ("Succeeded", "Failed")


def _control_claim(kube: FakeKube, key: str, claim: Json, uids: set[str]) -> None:
    reserved = claim["status"].get("reservedFor", [])
    left = [one for one in reserved if one["uid"] in uids]
    changed = copy(claim)
    if len(left) < len(reserved):
        changed["status"]["reservedFor"] = left
        if not left:
            changed["status"] = {}
            changed["metadata"]["finalizers"] = []
        kube.put_object(DEVICE_CLAIMS, changed)
    owner = next((one["uid"] for one in claim["metadata"].get("ownerReferences", ())), "")
    if owner and owner not in uids and not changed["status"].get("allocation"):
        kube.drop_object(DEVICE_CLAIMS, key)


def devices_of(claim: Json) -> list[str]:
    return [f"{one['driver']}/{one['pool']}/{one['device']}" for one in devices_results(claim)]


def devices_results(claim: Json) -> list[Json]:
    found: list[Json] = (claim["status"].get("allocation") or {}).get("devices", {}).get("results", [])
    return found


def claims_of(pod: Json) -> list[str]:
    told = {one["name"]: one["resourceClaimName"] for one in pod["status"].get("resourceClaimStatuses", ())}
    names = [one.get("resourceClaimName") or told.get(one["name"]) for one in pod["spec"].get("resourceClaims", ())]
    names.append(pod["status"].get("extendedResourceClaimStatus", {}).get("resourceClaimName"))
    return [f"default/{name}" for name in names if name]


def requested(pod: Json) -> tuple[str, int]:
    """Which extended resource that a class stands for the pod's only container requests, and how many."""
    requests = pod["spec"]["containers"][0]["resources"].get("requests", {})
    return next(((name, int(requests[name])) for name in (RESOURCE, IMPLICIT) if name in requests), (RESOURCE, 0))


def by_plugin(kube: FakeKube, node: str, resource: str = RESOURCE) -> int:
    """How many of a resource a device plugin offers on a node."""
    return int(kube.nodes.get(node, {}).get("status", {}).get("allocatable", {}).get(resource, 0))


def check_claims(kube: FakeKube, *, local: bool = True, others: bool = False) -> list[str]:
    """D1: no device is in two claims (``others`` choose too: in those of pods that are bound). D2: a bound pod has what
    it claims, for itself, and (``local``) on its node."""
    claims = kube.objects.get("resourceclaims", {})
    bound = {key for pod in kube.pods.values() if pod["spec"].get("nodeName") for key in claims_of(pod)}
    judged = [claim for key, claim in claims.items() if not others or key in bound]
    times = Counter(device for claim in judged for device in devices_of(claim))
    found = [f"D1: {device} is given to {count} claims" for device, count in times.items() if count > 1]
    for pod in kube.pods.values():
        node = pod["spec"].get("nodeName")
        resource, count = requested(pod)
        delegated = bool(count) and not by_plugin(kube, node, resource)
        if not node or pod["status"].get("phase") in ENDED:
            continue
        if not delegated and "extendedResourceClaimStatus" in pod["status"]:
            found.append(f"D5: {pod['metadata']['name']} tells of a claim, and {node} has a device plugin")
        if not delegated and not pod["spec"].get("resourceClaims"):
            continue
        if not claims_of(pod):
            found.append(f"D2: {pod['metadata']['name']} is bound, and its claims are not made")
        if delegated:
            found += _wrongly_mapped(pod, claims, resource, count)
        for key in claims_of(pod):
            claim = claims.get(key, {"status": {}})
            devices, users = devices_of(claim), [one["uid"] for one in claim["status"].get("reservedFor", ())]
            if not devices or not {pod["metadata"]["uid"], group_of(kube, pod)["metadata"]["uid"]} & set(users):
                found.append(f"D2: {pod['metadata']['name']} is bound, {key} has {devices} for {users}")
            elif local and any(device.split("/")[1] != node for device in devices):
                found.append(f"D2: {pod['metadata']['name']} is on {node}, its devices are {devices}")
    return found


def _wrongly_mapped(pod: Json, claims: Json, resource: str, count: int) -> list[str]:
    """D6: the pod's only container is served by a request of the claim that its status names, and got so many."""
    name, told = pod["metadata"]["name"], pod["status"].get("extendedResourceClaimStatus", {})
    claim = claims.get(f"default/{told.get('resourceClaimName')}", {"status": {}, "metadata": {}})
    mapped = [(one["resourceName"], one["requestName"]) for one in told.get("requestMappings", ())]
    requests = {result["request"] for result in devices_results(claim)}
    owners = [one["uid"] for one in claim["metadata"].get("ownerReferences", ())]
    if len(devices_of(claim)) != count or mapped != [(resource, one) for one in requests]:
        return [f"D6: {name} asks for {count}, its claim has {devices_of(claim)} for {mapped}"]
    return [] if owners == [pod["metadata"]["uid"]] else [f"D6: the claim of {name} is {owners}'s"]


def leaked(kube: FakeKube) -> list[str]:
    """D3, at rest: what is given to a claim is used by a pod that runs. D7: a pod has one claim that was made for its
    extended resources, and that is the one its status tells of."""
    told = {key for pod in kube.pods.values() if pod["spec"].get("nodeName") for key in claims_of(pod)}
    bound = [pod for pod in kube.pods.values() if pod["spec"].get("nodeName")]
    running = {one["metadata"]["uid"] for pod in bound for one in (pod, group_of(kube, pod))}
    found = []
    for key, claim in kube.objects.get("resourceclaims", {}).items():
        users = {one["uid"] for one in claim["status"].get("reservedFor", ())}
        if claim["status"].get("allocation") and not users & running:
            found.append(f"D3: {key} keeps {devices_of(claim)} for {users or 'nobody'}")
        if EXTENDED_CLAIM in claim["metadata"].get("annotations", {}) and key not in told:
            found.append(f"D7: {key} was made, and no pod that runs tells of it")
    return found
