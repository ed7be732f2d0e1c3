"""The resource claim controller of the twin: claims come from templates, and are freed when nobody uses them.

What ``pkg/controller/resourceclaim`` of Kubernetes 1.36 does. A pod that names a template gets a claim of its own,
whose name its status tells; a claim that is gone, or is no longer the pod's, is made again. A pod that has ended, is
gone, or was replaced by another of its name leaves ``reservedFor``; with the last consumer the allocation goes, then
the finalizer, and a claim that was made for a pod that will not run is deleted: by its template, or by a scheduler for
its extended resources. A pod group that names a template gets one claim, whose name its status tells and that of each
member which names it alike; a claim that is reserved for a group is so for as long as the group is there.
"""

from __future__ import annotations

from typing import Any

from twin.controllers.runtime import Controller, ObjectKey
from twin.kinds.workload.pod_groups import GROUP, PODGROUPS
from twin.registry.registry import TwinRegistry

Json = dict[str, Any]

CLAIMS, TEMPLATES = "resourceclaims.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io"
FINALIZER = "resource.kubernetes.io/delete-protection"
MADE_FOR = "resource.kubernetes.io/pod-claim-name"
"""Annotation of a generated claim: which of the pod's it is."""

MOST_BASE = 57
"""Characters of a generated name before the five random ones and their hyphen."""

_ENDED = ("Succeeded", "Failed")


class DeviceClaimController(Controller[ObjectKey]):
    """Keys are pods, pod groups and claims."""

    user = "system:serviceaccount:kube-system:resource-claim-controller"

    def __init__(self, registry: TwinRegistry) -> None:
        super().__init__(registry)
        self._made: dict[tuple[str, str], str] = {}
        """(uid of a pod or pod group, its name for the claim) to the claim that was made."""
        self._waiting: dict[tuple[str, str], set[ObjectKey]] = {}
        """(namespace, template) to the pods and pod groups that wait for it to be there."""
        self._members: dict[tuple[str, str], set[str]] = {}
        """(namespace, pod group) to its pods that claim devices."""

    def follows(self) -> list[str]:
        return [CLAIMS, TEMPLATES, PODGROUPS, "pods"]

    def concerns(self, resource: str, obj: Json, *, gone: bool) -> None:
        meta = obj["metadata"]
        if resource == "pods":
            self._concerns_pod(obj, gone=gone)
        elif resource == PODGROUPS:
            if not gone:
                self.note((PODGROUPS, meta["namespace"], meta["name"]))
                self._note_members(meta["namespace"], meta["name"])
            for name in claims_of(obj) if gone else ():
                self.note((CLAIMS, meta["namespace"], name))
        elif resource == TEMPLATES and not gone:
            for key in self._waiting.pop((meta["namespace"], meta["name"]), ()):
                self.note(key)
        elif resource == CLAIMS:
            self._keep(obj, gone=gone)

    def _concerns_pod(self, pod: Json, *, gone: bool) -> None:
        meta, claims = pod["metadata"], pod["spec"].get("resourceClaims")
        if (group := group_of(pod)) and claims:
            members = self._members.setdefault((meta["namespace"], group), set())
            if gone:
                members.discard(meta["name"])
            else:
                members.add(meta["name"])
            if not members:
                del self._members[meta["namespace"], group]
        if claims and not gone:
            self.note(("pods", meta["namespace"], meta["name"]))
        if gone or done(pod):
            for name in claims_of(pod):
                self.note((CLAIMS, meta["namespace"], name))

    def _note_members(self, namespace: str, group: str) -> None:
        for name in self._members.get((namespace, group), ()):
            self.note(("pods", namespace, name))

    def _keep(self, claim: Json, *, gone: bool) -> None:
        meta = claim["metadata"]
        owner, mine = owner_of(claim), (meta.get("annotations") or {}).get(MADE_FOR)
        if owner is not None and mine is not None:
            key = (owner["uid"], mine)
            if not gone:
                self._made[key] = meta["name"]
            elif self._made.get(key) == meta["name"]:
                del self._made[key]
                self.note((_KINDS[owner["kind"]], meta["namespace"], owner["name"]))
            if owner["kind"] == "PodGroup":
                self._note_members(meta["namespace"], owner["name"])
        if not gone:
            self.note((CLAIMS, meta["namespace"], meta["name"]))

    def reconcile(self, key: ObjectKey) -> None:
        obj = self.registry.get(*key)
        if obj is None:
            return
        if key[0] == CLAIMS:
            self._sync_claim(key, obj)
        elif not obj["metadata"].get("deletionTimestamp") and not (key[0] == "pods" and done(obj)):
            self._sync_owner(key, obj)

    # --- pods and pod groups ------------------------------------------------------------------------------------------

    def _sync_owner(self, key: ObjectKey, owner: Json) -> None:
        """Every template that the pod, or the pod group, names has its claim, and its status the name."""
        status = owner.get("status") or {}
        told = {one["name"]: one.get("resourceClaimName") for one in status.get("resourceClaimStatuses") or ()}
        found = dict(told)
        shared = self._shared(owner) if key[0] == "pods" else None
        for one in owner["spec"].get("resourceClaims") or ():
            template = one.get("resourceClaimTemplateName")
            if template is None or self._has(owner, one["name"], told):
                continue
            if shared is None or one not in (shared["spec"].get("resourceClaims") or ()):
                name = self._claim_from(key, owner, one["name"], template)
            else:  # the group's is made when it is looked at itself, and its members are then
                name = self._made.get((shared["metadata"]["uid"], one["name"]), "")
            if name:
                found[one["name"]] = name
        if found != told:
            statuses = [{"name": name, "resourceClaimName": claim} for name, claim in sorted(found.items())]
            self.change(
                key,
                lambda old: {**old, "status": {**(old.get("status") or {}), "resourceClaimStatuses": statuses}},
                verb="patch",
            )

    def _shared(self, pod: Json) -> Json | None:
        """The pod's group; where it is not there, nothing is known to be the group's, and the pod waits for it."""
        group = group_of(pod)
        if not group:
            return None
        found = self.registry.get(PODGROUPS, pod["metadata"]["namespace"], group)
        return found if found is not None else {"metadata": {"uid": ""}, "spec": pod["spec"]}

    def _has(self, owner: Json, name: str, told: dict[str, str | None]) -> bool:
        """Whether the claim that the status tells of is there, and its own or its group's; or that it needs none."""
        if name not in told:
            return False
        claim_name = told[name]
        if claim_name is None:
            return True
        claim = self.registry.get(CLAIMS, owner["metadata"]["namespace"], claim_name)
        found = owner_of(claim) if claim is not None else None
        if found is None or found["uid"] == owner["metadata"]["uid"]:
            return found is not None
        return bool(found["kind"] == "PodGroup" and found["name"] == group_of(owner))

    def _claim_from(self, key: ObjectKey, owner: Json, name: str, template_name: str) -> str:
        """The claim that was made for the owner, made now where there is none; "" while the template is missing."""
        meta = owner["metadata"]
        made = self._made.get((meta["uid"], name))
        if made is not None:
            return made
        template = self.registry.get(TEMPLATES, meta["namespace"], template_name)
        if template is None:
            self._waiting.setdefault((meta["namespace"], template_name), set()).add(key)
            return ""
        self.create(CLAIMS, meta["namespace"], generated_claim(owner, name, template, group=key[0] == PODGROUPS))
        return self._made.get((meta["uid"], name), "")

    # --- claims -------------------------------------------------------------------------------------------------------

    def _sync_claim(self, key: ObjectKey, claim: Json) -> None:
        status = claim.get("status") or {}
        reserved = status.get("reservedFor") or []
        remaining = [one for one in reserved if self._uses(key[1], one)]
        ours = FINALIZER in (claim["metadata"].get("finalizers") or ())
        ending = bool(claim["metadata"].get("deletionTimestamp"))
        if len(remaining) < len(reserved) or (ending and ours and not remaining and status.get("allocation")):
            claim = self.change(key, lambda old: _freed(old, remaining, deallocate=ours and not remaining))
            status = claim.get("status") or {}
        if not remaining and ours and not status.get("allocation") and (reserved or ending):
            self.release(key, claim, FINALIZER)
        if not remaining and not ending and self._without_pod(key[1], claim):
            self.delete(CLAIMS, claim)

    def _uses(self, namespace: str, consumer: Json) -> bool:
        """Whether a consumer still may use the claim. What is neither pod nor pod group is not judged."""
        kind = (consumer.get("apiGroup") or "", consumer.get("resource"))
        if kind == (GROUP, "podgroups"):
            group = self.registry.get(PODGROUPS, namespace, consumer["name"])
            return group is not None and group["metadata"]["uid"] == consumer["uid"]
        if kind != ("", "pods"):
            return True
        pod = self.registry.get("pods", namespace, consumer["name"])
        return pod is not None and pod["metadata"]["uid"] == consumer["uid"] and not done(pod)

    def _without_pod(self, namespace: str, claim: Json) -> bool:
        """Whether it was made for a pod that was replaced or will not run. One that is gone is the garbage
        collector's."""
        owner = owner_of(claim)
        if owner is None or owner["kind"] != "Pod":
            return False
        pod = self.registry.get("pods", namespace, owner["name"])
        return pod is not None and (pod["metadata"]["uid"] != owner["uid"] or done(pod))


def done(pod: Json) -> bool:
    """Whether a pod needs no device any more: it has ended, or is deleted before it had a node."""
    ended = (pod.get("status") or {}).get("phase") in _ENDED
    return ended or bool(pod["metadata"].get("deletionTimestamp") and not pod["spec"].get("nodeName"))


def group_of(pod: Json) -> str:
    """The name of the pod's PodGroup, "" where it has none."""
    return (pod["spec"].get("schedulingGroup") or {}).get("podGroupName") or ""


def claims_of(user: Json) -> list[str]:
    """The names of all claims that a pod or a pod group uses, as far as they are made; that of a pod's extended
    resources, too."""
    status = user.get("status") or {}
    told = {one["name"]: one.get("resourceClaimName") for one in status.get("resourceClaimStatuses") or ()}
    names = [one.get("resourceClaimName") or told.get(one["name"]) for one in user["spec"].get("resourceClaims") or ()]
    names.append((status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName"))
    return [name for name in names if name]


_KINDS = {"Pod": "pods", "PodGroup": PODGROUPS}
"""Of what may own a claim."""


def owner_of(claim: Json) -> Json | None:
    """The reference to the pod, or the pod group, that a claim was made for."""
    owners = claim["metadata"].get("ownerReferences") or ()
    found: list[Json] = [one for one in owners if one.get("controller") and one["kind"] in _KINDS]
    return found[0] if found else None


def generated_claim(user: Json, name: str, template: Json, *, group: bool = False) -> Json:
    """The claim of a pod, or a pod group, by a template: its spec, labels and annotations, and its owner."""
    meta = user["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod"}
    if group:
        owner = {"apiVersion": user.get("apiVersion") or f"{GROUP}/v1alpha2", "kind": "PodGroup"}
    given = template["spec"].get("metadata") or {}
    base = f"{meta['name']}-{name}-"
    if len(base) > MOST_BASE:  # both parts are cut, so that neither is lost
        cut = MOST_BASE / len(base)
        base = f"{meta['name'][: int(len(meta['name']) * cut)]}-{name[: int(len(name) * cut)]}"
    metadata: Json = {
        "generateName": base,
        "namespace": meta["namespace"],
        "annotations": {**(given.get("annotations") or {}), MADE_FOR: name},
        "ownerReferences": [
            {**owner, "name": meta["name"], "uid": meta["uid"], "controller": True, "blockOwnerDeletion": True}
        ],
    }
    if given.get("labels"):
        metadata["labels"] = dict(given["labels"])
    return {"metadata": metadata, "spec": template["spec"]["spec"]}


def _freed(claim: Json, remaining: list[Json], *, deallocate: bool) -> Json:
    status = {key: value for key, value in (claim.get("status") or {}).items() if key != "reservedFor"}
    if remaining:
        status["reservedFor"] = remaining
    if deallocate:
        status.pop("allocation", None)
        status.pop("devices", None)
    return {**claim, "status": status}
