"""Which unbound volume a claim would get on a node, and whether one could be made there.

Source: kube-scheduler 1.36 ``plugins/volumebinding/binder.go``, ``component-helpers/storage/volume``: the volume
reserved for the claim, else the smallest that is large enough; claims are served by size, each volume once. Ties go by
name. Storage capacity objects are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from shared.model.cluster_objects import PersistentVolume, StorageClass, VolumeClaim
from shared.model.constraints import SelectorTerm
from shared.model.terms.labels import selects
from shared.scheduling.matching.selectors import term_mask
from shared.scheduling.state.node_table import BoolArray, NodeTable

NO_PROVISIONER = "kubernetes.io/no-provisioner"


def affinity_mask(table: NodeTable, terms: tuple[SelectorTerm, ...] | None) -> BoolArray:
    """``[rows]``: nodes that reach a volume with this node affinity; None: all."""
    if terms is None:
        return np.ones(table.rows, np.bool_)
    passing: BoolArray = np.zeros(table.rows, np.bool_)
    for term in terms:
        found = _few_values(table, term)
        passing |= term_mask(table, term) if found is None else found
    return passing


def _few_values(table: NodeTable, term: SelectorTerm) -> BoolArray | None:
    """A term of In expressions alone, judged by the values it names instead of by all there are (a local volume names
    one of thousands of hostnames); None for any other term."""
    if not term.expressions or term.fields or any(e.operator != "In" for e in term.expressions):
        return None
    passing: BoolArray = np.ones(table.rows, np.bool_)
    for expression in term.expressions:
        codes = table.codes_of(expression.key)
        if codes is None:
            return np.zeros(table.rows, np.bool_)
        values = table.label_values[expression.key]
        wanted = [values[value] for value in expression.values if value in values]
        passing &= (codes == wanted[0]) if len(wanted) == 1 else np.isin(codes, wanted)
    return passing


def usable_volumes(claim: VolumeClaim, volumes: Iterable[PersistentVolume]) -> list[PersistentVolume]:
    """Those of ``volumes``, all of the claim's class, that it could be bound to, on whichever node: by size.

    Where one is reserved for the claim it is the only one returned.
    """
    fitting = []
    for volume in volumes:
        if volume.deleting or volume.capacity_bytes < claim.storage_bytes or volume.volume_mode != claim.volume_mode:
            continue
        if volume.claim is not None:
            if _reserved_for(volume, claim):
                return [volume]
            continue
        if not volume.available or not claim.access_modes <= volume.access_modes:
            continue
        if claim.selector is None or selects(claim.selector, volume.labels):
            fitting.append(volume)
    return sorted(fitting, key=lambda volume: (volume.capacity_bytes, volume.name))


def _reserved_for(volume: PersistentVolume, claim: VolumeClaim) -> bool:
    assert volume.claim is not None
    key, uid = volume.claim
    return key == claim.key and (not uid or uid == claim.uid)


def unmatched_claims(
    claims: Iterable[VolumeClaim],
    usable: Mapping[str, list[PersistentVolume]],
    reachable: Mapping[str, BoolArray],
    row: int,
) -> list[VolumeClaim]:
    """Claims, in order, for which the node of ``row`` reaches no free volume. ``usable`` by claim key, ``reachable``
    by volume name."""
    taken: set[str] = set()
    unmatched = []
    for claim in claims:
        for volume in usable[claim.key]:
            if volume.name not in taken and reachable[volume.name][row]:
                taken.add(volume.name)
                break
        else:
            unmatched.append(claim)
    return unmatched


def provisioning_mask(table: NodeTable, storage_class: StorageClass | None) -> BoolArray:
    """``[rows]``: nodes on which a volume of the class can be made."""
    if storage_class is None or storage_class.provisioner in ("", NO_PROVISIONER):
        return np.zeros(table.rows, np.bool_)
    if not storage_class.topologies:
        return np.ones(table.rows, np.bool_)
    passing: BoolArray = np.zeros(table.rows, np.bool_)
    for term in storage_class.topologies:
        if not term:
            continue
        holds: BoolArray = np.ones(table.rows, np.bool_)
        for key, values in term:
            codes, known = table.codes_of(key), table.label_values.get(key, {})
            wanted = [known[value] for value in values if value in known]
            holds &= np.zeros(table.rows, np.bool_) if codes is None else np.isin(codes, wanted)
        passing |= holds
    return passing
