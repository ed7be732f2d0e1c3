"""The resource claim controller of the twin: claims come from templates, and are freed when nobody uses them.

What ``pkg/controller/resourceclaim`` of Kubernetes 1.36 does. A pod that names a template gets a claim of its own,
whose name its status tells; a claim that is gone, or is no longer the pod's, is made again. A pod that has ended, is
gone, or was replaced by another of its name leaves ``reservedFor``; with the last consumer the allocation goes, then
the finalizer, and a claim that was made for a pod that will not run is deleted: by its template, or by a scheduler for
its extended resources. Pod groups' claims are left alone.
"""

from __future__ import annotations

from typing import Any

from twin.controllers.runtime import Controller, ObjectKey
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
    """Keys are pods and claims."""

    user = "system:serviceaccount:kube-system:resource-claim-controller"

    def __init__(self, registry: TwinRegistry) -> None:
        super().__init__(registry)
        self._made: dict[tuple[str, str], str] = {}
        """(pod uid, its name for the claim) to the claim that was made."""
        self._waiting: dict[tuple[str, str], set[str]] = {}
        """(namespace, template) to the pods that wait for it to be there."""

    def follows(self) -> list[str]:
        return [CLAIMS, TEMPLATES, "pods"]

    def concerns(self, resource: str, obj: Json, *, gone: bool) -> None:
        meta = obj["metadata"]
        if resource == "pods":
            if obj["spec"].get("resourceClaims") and not gone:
                self.note(("pods", meta["namespace"], meta["name"]))
            if gone or done(obj):
                for name in claims_of(obj):
                    self.note((CLAIMS, meta["namespace"], name))
        elif resource == TEMPLATES and not gone:
            for name in self._waiting.pop((meta["namespace"], meta["name"]), ()):
                self.note(("pods", meta["namespace"], name))
        elif resource == CLAIMS:
            self._keep(obj, gone=gone)

    def _keep(self, claim: Json, *, gone: bool) -> None:
        meta = claim["metadata"]
        owner, mine = owning_pod(claim), (meta.get("annotations") or {}).get(MADE_FOR)
        if owner is not None and mine is not None:
            key = (owner["uid"], mine)
            if not gone:
                self._made[key] = meta["name"]
            elif self._made.get(key) == meta["name"]:
                del self._made[key]
                self.note(("pods", meta["namespace"], owner["name"]))
        if not gone:
            self.note((CLAIMS, meta["namespace"], meta["name"]))

    def reconcile(self, key: ObjectKey) -> None:
        obj = self.registry.get(*key)
        if obj is None:
            return
        if key[0] == "pods":
            self._sync_pod(key, obj)
        else:
            self._sync_claim(key, obj)

    # --- pods ---------------------------------------------------------------------------------------------------------

    def _sync_pod(self, key: ObjectKey, pod: Json) -> None:
        """Every template that the pod names has its claim, and the pod's status its name."""
        if done(pod) or pod["metadata"].get("deletionTimestamp"):
            return
        told = {one["name"]: one.get("resourceClaimName") for one in pod["status"].get("resourceClaimStatuses") or ()}
        found = dict(told)
        for one in pod["spec"]["resourceClaims"]:
            template = one.get("resourceClaimTemplateName")
            if template is not None and not self._has(pod, one["name"], told):
                name = self._claim_from(pod, one["name"], template)
                if name:
                    found[one["name"]] = name
        if found != told:
            statuses = [{"name": name, "resourceClaimName": claim} for name, claim in sorted(found.items())]
            self.change(
                key, lambda old: {**old, "status": {**old["status"], "resourceClaimStatuses": statuses}}, verb="patch"
            )

    def _has(self, pod: Json, name: str, told: dict[str, str | None]) -> bool:
        """Whether the claim that the pod's status tells of is there, and the pod's own; or that it needs none."""
        if name not in told:
            return False
        claim_name = told[name]
        if claim_name is None:
            return True
        claim = self.registry.get(CLAIMS, pod["metadata"]["namespace"], claim_name)
        owner = owning_pod(claim) if claim is not None else None
        return owner is not None and owner["uid"] == pod["metadata"]["uid"]

    def _claim_from(self, pod: Json, name: str, template_name: str) -> str:
        """The claim that was made for the pod, made now where there is none; "" while the template is missing."""
        meta = pod["metadata"]
        made = self._made.get((meta["uid"], name))
        if made is not None:
            return made
        template = self.registry.get(TEMPLATES, meta["namespace"], template_name)
        if template is None:
            self._waiting.setdefault((meta["namespace"], template_name), set()).add(meta["name"])
            return ""
        self.create(CLAIMS, meta["namespace"], generated_claim(pod, name, template))
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
        """Whether a consumer still may use the claim. What is no pod is not judged."""
        if consumer.get("apiGroup") or consumer.get("resource") != "pods":
            return True
        pod = self.registry.get("pods", namespace, consumer["name"])
        return pod is not None and pod["metadata"]["uid"] == consumer["uid"] and not done(pod)

    def _without_pod(self, namespace: str, claim: Json) -> bool:
        """Whether it was made for a pod that was replaced or will not run. One that is gone is the garbage
        collector's."""
        owner = owning_pod(claim)
        pod = self.registry.get("pods", namespace, owner["name"]) if owner is not None else None
        return owner is not None and pod is not None and (pod["metadata"]["uid"] != owner["uid"] or done(pod))


def done(pod: Json) -> bool:
    """Whether a pod needs no device any more: it has ended, or is deleted before it had a node."""
    ended = (pod.get("status") or {}).get("phase") in _ENDED
    return ended or bool(pod["metadata"].get("deletionTimestamp") and not pod["spec"].get("nodeName"))


def claims_of(pod: Json) -> list[str]:
    """The names of all claims that a pod uses, as far as they are made; that of its extended resources, too."""
    status = pod["status"]
    told = {one["name"]: one.get("resourceClaimName") for one in status.get("resourceClaimStatuses") or ()}
    names = [one.get("resourceClaimName") or told.get(one["name"]) for one in pod["spec"].get("resourceClaims") or ()]
    names.append((status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName"))
    return [name for name in names if name]


def owning_pod(claim: Json) -> Json | None:
    """The reference to the pod that a claim was made for."""
    owners = claim["metadata"].get("ownerReferences") or ()
    found: list[Json] = [one for one in owners if one.get("controller") and one["kind"] == "Pod"]
    return found[0] if found else None


def generated_claim(pod: Json, name: str, template: Json) -> Json:
    """The claim of a pod by a template: its spec, labels and annotations, the pod as its owner."""
    meta = pod["metadata"]
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
            {
                "apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }  # fmt: skip
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
