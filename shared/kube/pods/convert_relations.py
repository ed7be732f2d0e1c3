"""From a pod's JSON structs to its ``Relations``: affinity between pods, topology spread, volumes; and its images.

Pure. Selectors are taken as stored by the API server, which has merged ``matchLabelKeys`` and ``mismatchLabelKeys``
into those of affinity terms; those of spread constraints are merged here, since servers before 1.34 leave that to the
scheduler (merging twice changes nothing).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shared.errors import ObjectError
from shared.kube import objects as api
from shared.model.constraints import Requirement
from shared.model.terms.labels import LabelSelector, both, canonical, selector_of_labels
from shared.model.terms.relations import (
    NO_RELATIONS,
    AffinityTerm,
    ClaimUse,
    DiskUse,
    Relations,
    SpreadConstraint,
    WeightedTerm,
)

SELECTOR_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


def relations_of(pod: api.KubePod) -> Relations | None:
    """What the pod demands beyond the node; None for nothing. Raises ``ObjectError`` naming the field."""
    spec = pod.spec
    affinity = spec.affinity
    between = affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)
    if not between and not spec.topology_spread_constraints and not spec.volumes:
        return None
    claims = _claims(pod.metadata.name, spec.volumes or ())
    disks = tuple(disk for volume in spec.volumes or () for disk in _disks(volume))
    if not between and not spec.topology_spread_constraints and not claims and not disks:
        return None
    toward = affinity.pod_affinity if affinity is not None else None
    away = affinity.pod_anti_affinity if affinity is not None else None
    namespace = pod.metadata.namespace or ""
    relations = Relations(
        affinity=_required(toward, namespace, "podAffinity"),
        anti_affinity=_required(away, namespace, "podAntiAffinity"),
        preferences=(
            *_preferred(toward, namespace, "podAffinity", sign=1),
            *_preferred(away, namespace, "podAntiAffinity", sign=-1),
        ),
        spread=_spread(spec.topology_spread_constraints or (), pod.metadata.labels or {}),
        claims=claims,
        disks=disks,
    )
    return None if relations == NO_RELATIONS else relations


def selector_from_api(selector: api.KubeLabelSelector | None, field: str) -> LabelSelector | None:
    """The selector; None where there is none, which matches nothing. Raises ``ObjectError`` for another operator."""
    if selector is None:
        return None
    requirements = [Requirement(key, "In", (value,)) for key, value in (selector.match_labels or {}).items()]
    for expression in selector.match_expressions or ():
        if expression.operator not in SELECTOR_OPERATORS:
            raise ObjectError(
                f"{expression.operator[:32]!r} is no operator of a label selector; use In, NotIn, Exists, DoesNotExist",
                field=f"{field}.matchExpressions",
            )
        requirements.append(Requirement(expression.key, expression.operator, tuple(sorted(expression.values or ()))))
    return canonical(requirements)


def images_of(spec: api.PodSpec) -> tuple[str, ...]:
    """Normalised image name of every init container and container, repeated ones too."""
    return tuple(normalised_image(c.image or "") for c in (*(spec.init_containers or ()), *(spec.containers or ())))


def node_images(node: api.KubeNode) -> dict[str, int]:
    """Bytes by each name of the images on the node, as the kubelet reports them (its names carry tag or digest)."""
    return {name: image.size_bytes or 0 for image in node.status.images or () for name in image.names or ()}


def normalised_image(name: str) -> str:
    """``:latest`` is what a name without tag or digest means (kube-scheduler ``plugins/imagelocality``)."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def _required(affinity: api.PodAffinity | None, namespace: str, field: str) -> tuple[AffinityTerm, ...]:
    if affinity is None:
        return ()
    return tuple(_term(term, namespace, f"spec.affinity.{field}.required") for term in affinity.required or ())


def _preferred(affinity: api.PodAffinity | None, namespace: str, field: str, *, sign: int) -> tuple[WeightedTerm, ...]:
    if affinity is None:
        return ()
    where = f"spec.affinity.{field}.preferred"
    return tuple(
        WeightedTerm(sign * item.weight, _term(item.pod_affinity_term, namespace, where))
        for item in affinity.preferred or ()
    )


def _term(term: api.PodAffinityTerm, namespace: str, field: str) -> AffinityTerm:
    named = tuple(sorted(set(term.namespaces or ())))
    if not named and term.namespace_selector is None:
        named = (namespace,)
    return AffinityTerm(
        topology_key=term.topology_key,
        selector=selector_from_api(term.label_selector, f"{field}.labelSelector"),
        namespaces=named,
        namespace_selector=selector_from_api(term.namespace_selector, f"{field}.namespaceSelector"),
    )


def _spread(
    constraints: Iterable[api.TopologySpreadConstraint], labels: Mapping[str, str]
) -> tuple[SpreadConstraint, ...]:
    found = []
    for index, item in enumerate(constraints):
        selector = selector_from_api(item.label_selector, f"spec.topologySpreadConstraints[{index}].labelSelector")
        wanted = {key: labels[key] for key in item.match_label_keys or () if key in labels}
        if wanted and selector is not None:
            selector = both(selector, selector_of_labels(wanted))
        found.append(
            SpreadConstraint(
                max_skew=item.max_skew,
                topology_key=item.topology_key,
                hard=item.when_unsatisfiable == "DoNotSchedule",
                selector=selector,
                min_domains=1 if item.min_domains is None else item.min_domains,
                honor_affinity=item.node_affinity_policy != "Ignore",
                honor_taints=item.node_taints_policy == "Honor",
            )
        )
    return tuple(found)


def _claims(pod_name: str, volumes: Iterable[api.Volume]) -> tuple[ClaimUse, ...]:
    claims = []
    for volume in volumes:
        if volume.persistent_volume_claim is not None:
            claims.append(ClaimUse(volume.persistent_volume_claim.claim_name))
        elif volume.ephemeral is not None:
            claims.append(ClaimUse(f"{pod_name}-{volume.name}", ephemeral=True))
    return tuple(claims)


def _disks(volume: api.Volume) -> Iterable[DiskUse]:
    if volume.gce_persistent_disk is not None:
        yield DiskUse("gce", (volume.gce_persistent_disk.pd_name,), bool(volume.gce_persistent_disk.read_only))
    if volume.aws_elastic_block_store is not None:
        yield DiskUse("ebs", (volume.aws_elastic_block_store.volume_id,))
    if volume.iscsi is not None:
        yield DiskUse("iscsi", (volume.iscsi.iqn,), bool(volume.iscsi.read_only))
    if volume.rbd is not None:
        rbd = volume.rbd
        yield DiskUse("rbd", (rbd.pool or "rbd", rbd.image), bool(rbd.read_only), tuple(rbd.monitors or ()))
