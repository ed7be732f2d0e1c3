"""From a pod's JSON structs to what it claims of devices: its claims, and what each container requests. Pure."""

from __future__ import annotations

from shared.errors import ObjectError
from shared.kube import objects as api
from shared.kube.pods.convert_requests import effective_requests
from shared.model import devices as model
from shared.model.resources import is_extended, parse_quantity


def device_pod_from_api(pod: api.KubePod) -> model.DevicePod:
    """The pod as the rules about devices see it. Raises ``ObjectError`` for a request that is no quantity."""
    meta, spec = pod.metadata, pod.spec
    made = {one.name: one.resource_claim_name or "" for one in pod.status.resource_claim_statuses or ()}
    claims = []
    for one in spec.resource_claims or ():
        if one.resource_claim_name is not None:
            claims.append(model.ClaimRef(one.name, one.resource_claim_name))
        elif one.resource_claim_template_name is not None:
            claims.append(model.ClaimRef(one.name, made.get(one.name), one.resource_claim_template_name))
        else:
            claims.append(model.ClaimRef(one.name, sourceless=True))
    return model.DevicePod(
        meta.namespace or "", meta.name, meta.uid, tuple(claims), _containers(spec),
        tuple(sorted(effective_requests(pod).items())),
    )  # fmt: skip


def extended_asks(spec: api.PodSpec) -> tuple[model.ContainerAsk, ...]:
    """All containers, where one requests an extended resource, which a device class may stand for; else none. Raises
    ``ObjectError`` for a request that is no quantity."""
    for container in (*(spec.containers or ()), *(spec.init_containers or ())):
        asked = container.resources.requests if container.resources is not None else None
        if any(map(is_extended, asked or ())):
            return _containers(spec)
    return ()


def extended_claim(status: api.PodStatus) -> model.ExtendedClaim | None:
    """The claim that was made for the pod's extended resources, as its status tells of it."""
    told = status.extended_resource_claim_status
    if told is None:
        return None
    mapped = (
        model.Mapped(one.container_name, one.resource_name, one.request_name) for one in told.request_mappings or ()
    )
    return model.ExtendedClaim(told.resource_claim_name, tuple(mapped))


def extended_claim_json(claim: model.ExtendedClaim) -> dict[str, object]:
    """The same as it is written."""
    mapped = [
        {"containerName": one.container, "resourceName": one.resource, "requestName": one.request}
        for one in claim.mapped
    ]
    return {"resourceClaimName": claim.name, "requestMappings": mapped}


def _containers(spec: api.PodSpec) -> tuple[model.ContainerAsk, ...]:
    found = [
        model.ContainerAsk(one.name, _whole(one, f"spec.initContainers[{index}]"), one.restart_policy != "Always")
        for index, one in enumerate(spec.init_containers or ())
    ]
    found += [
        model.ContainerAsk(one.name, _whole(one, f"spec.containers[{index}]"))
        for index, one in enumerate(spec.containers or ())
    ]
    return tuple(found)


def _whole(container: api.Container, where: str) -> tuple[tuple[str, int], ...]:
    asked = container.resources.requests if container.resources is not None else None
    found = []
    for name, quantity in (asked or {}).items():
        try:
            found.append((name, parse_quantity(str(quantity))))
        except ValueError as error:
            raise ObjectError(str(error), field=f"{where}.resources.requests[{name}]") from error
    return tuple(sorted(found))
