"""The claim that a scheduler makes for the extended resources of a pod: made, deleted, and told in the pod's status.

    make_claim     POST, with finalizer and mark --> read; one that is there already is taken where it is this pod's
    delete_claim   read --> no finalizer --> DELETE by uid and resourceVersion
    tell_claim     PATCH pods/status by uid and resourceVersion --> the resourceVersion that the Binding names

The claim's name follows from the pod (``devices/extended.py``), so that a request that comes late makes no second one.
It is the pod's alone: where the pod does not bind it goes, and with the pod it goes too, by its owner reference.

Source: kube-scheduler 1.36 ``plugins/dynamicresources/extendeddynamicresources.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shared.errors import KubeError, KubeRejected, LeadershipLost
from shared.kube.device_objects import ResourceClaim
from shared.kube.pods.convert_asks import extended_claim, extended_claim_json
from shared.kube.pods.convert_devices import EXTENDED_CLAIM, PROTECTION, claim_from_api, request_json
from shared.kube.resources import PODS
from shared.kube.scheduling_kinds import DEVICE_CLAIMS
from shared.model.devices import Consumer, DeviceRequest, ExtendedClaim
from shared.model.pod import CAUSE_ANNOTATION
from shared.ports import BindRequest, KubeApi
from shared.runtime.kube.claims import ClaimName

DROPPED = (
    "the API server does not keep status.extendedResourceClaimStatus of pods; "
    "set --feature-gates=DRAExtendedResource=true on it and on the kubelets, or request devices by a claim"
)

TRIES = 5
"""Of deleting a claim that somebody else writes at the same time."""


async def make_claim(
    api: KubeApi, claim: ClaimName, owner: Consumer, requests: Sequence[DeviceRequest], *, mark: str,
    may_act: Callable[[], bool], reached: Callable[[str], None], created: Callable[[str], None] = lambda _: None,
) -> tuple[ResourceClaim, bool]:  # fmt: skip
    """The claim as it is, and whether it has the finalizer and this mark. ``created``: hears success or failure of the
    request, unless the claim is there already. ``KubeRejected``: 409 where one is there that
    asks for something else, 422 where it is not this pod's. ``LeadershipLost``: nothing was sent."""
    _check(may_act)
    reached("before_claim_create")
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": claim.name,
            "namespace": claim.namespace,
            "annotations": {EXTENDED_CLAIM: "true", CAUSE_ANNOTATION: mark},
            "finalizers": [PROTECTION],
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": owner.name, "uid": owner.uid, "controller": True}
            ],
        },
        "spec": {"devices": {"requests": [request_json(one) for one in requests]}},
    }
    try:
        await api.create(DEVICE_CLAIMS.resource, namespace=claim.namespace, body=body, wait_when_busy=False)
        created("success")
    except KubeError as error:
        if not isinstance(error, KubeRejected) or error.status != 409:
            created("failure")
            raise
    reached("after_claim_create")
    found = await api.get(DEVICE_CLAIMS.resource, namespace=claim.namespace, name=claim.name)
    if found is None:
        raise KubeRejected(f"resourceclaims {claim.name!r} is gone again", status=409, reason="Conflict")
    if not is_made_for(found, owner.uid):
        text = f"resourceclaims {claim.name!r} was not made for pod {owner.name!r}; delete it"
        raise KubeRejected(text, status=422, reason="Invalid")
    if claim_from_api(found).requests != tuple(requests):
        text = f"resourceclaims {claim.name!r} asks for what another node needed"
        raise KubeRejected(text, status=409, reason="Conflict")
    return found, (found.metadata.annotations or {}).get(CAUSE_ANNOTATION) == mark


async def delete_made(
    api: KubeApi, claim: ClaimName, consumer: str, *, may_act: Callable[[], bool],
    reached: Callable[[str], None] = lambda _: None,
) -> bool:  # fmt: skip
    """Whether no claim that was made for the pod is there any more. ``LeadershipLost``: it is not finished.

    For who keeps others from the pod until this is done: it is tried again whatever was written in between."""
    for _ in range(TRIES):
        found = await api.get(DEVICE_CLAIMS.resource, namespace=claim.namespace, name=claim.name)
        if found is None or not is_made_for(found, consumer):
            return True
        reached("before_claim_delete")
        if await _deleted(api, found, may_act):
            reached("after_claim_delete")
            return True
    return False


async def delete_claim(
    api: KubeApi, claim: ClaimName, consumer: str, *, resource_version: str, may_act: Callable[[], bool],
    reached: Callable[[str], None] = lambda _: None,
) -> bool:  # fmt: skip
    """Delete what an attempt has left for a pod, on the ground of what it was at ``resource_version``. False: it has
    changed since, or is gone, and nothing was done."""
    found = await api.get(DEVICE_CLAIMS.resource, namespace=claim.namespace, name=claim.name)
    if found is None or (found.metadata.uid, found.metadata.resource_version) != (claim.uid, resource_version):
        return False
    if not is_made_for(found, consumer):
        return False
    reached("before_claim_delete")
    deleted = await _deleted(api, found, may_act)
    if deleted:
        reached("after_claim_delete")
    return deleted


async def tell_claim(api: KubeApi, request: BindRequest, claim: ExtendedClaim | None) -> str:
    """Say in the pod's status which claim serves its extended resources (None: none does); the resourceVersion of the
    pod by that. ``KubeRejected``: 409 where the pod is not at the one that ``request`` names any more, 422 where the
    API server has left it out: the pod would be bound without its devices."""
    told = extended_claim_json(claim) if claim is not None else None
    pod = await api.patched(
        PODS, namespace=request.namespace, name=request.name, subresource="status", wait_when_busy=False,
        patch={
            "metadata": {"uid": request.uid, "resourceVersion": request.resource_version},
            "status": {"extendedResourceClaimStatus": told},
        },
    )  # fmt: skip
    if extended_claim(pod.status) != claim:
        raise KubeRejected(DROPPED, status=422, reason="Invalid")
    version: str = pod.metadata.resource_version
    return version


def is_made_for(claim: ResourceClaim, pod_uid: str) -> bool:
    """Whether a scheduler made the claim for the extended resources of this pod."""
    owners = claim.metadata.owner_references or ()
    mine = any(one.controller and one.uid == pod_uid for one in owners)
    return mine and (claim.metadata.annotations or {}).get(EXTENDED_CLAIM) == "true"


async def _deleted(api: KubeApi, found: ResourceClaim, may_act: Callable[[], bool]) -> bool:
    """False: somebody else has written it, and it is to be read again."""
    meta = found.metadata
    namespace, name = meta.namespace or "", meta.name
    try:
        if found.status.allocation is not None and any(one != PROTECTION for one in meta.finalizers or ()):
            _check(may_act)  # somebody else keeps it longer: it is not to keep its devices
            users = [{"$patch": "delete", "uid": one.uid} for one in found.status.reserved_for or ()]
            found = await api.patched(
                DEVICE_CLAIMS.resource, namespace=namespace, name=name, subresource="status", wait_when_busy=False,
                patch={
                    "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
                    "status": {"reservedFor": users, "allocation": None},
                },
            )  # fmt: skip
            meta = found.metadata
        if PROTECTION in (meta.finalizers or ()):
            _check(may_act)
            patch: dict[str, Any] = {
                "metadata": {
                    "uid": meta.uid, "resourceVersion": meta.resource_version,
                    "$deleteFromPrimitiveList/finalizers": [PROTECTION],
                }
            }  # fmt: skip
            found = await api.patched(
                DEVICE_CLAIMS.resource, namespace=namespace, name=name, patch=patch, wait_when_busy=False
            )
        _check(may_act)
        await api.delete(
            DEVICE_CLAIMS.resource, namespace=namespace, name=name, uid=meta.uid,
            resource_version=found.metadata.resource_version,
        )  # fmt: skip
    except KubeRejected as error:
        if error.status in (404, 409):
            return error.status == 404
        raise
    return True


def _check(may_act: Callable[[], bool]) -> None:
    if not may_act():
        raise LeadershipLost("the lease may have ended: a claim was not written")
