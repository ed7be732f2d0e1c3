"""``metadata.managedFields`` of plain writes: which manager last set which field.

A plain write (``Update``) owns what it changed and takes it from the others; an ``Apply`` owns what it says
(``applying.py``). The sets are kept beside the object, in the form they are shown in (FieldsV1), and shown in answers
about one object; lists and watches leave them out: informers throw them away and they are a third of the bytes.

Source: structured-merge-diff v4/v6 (``typed.Compare``, ``merge.Updater.Update``); which lists are maps and which values
are atomic: the ``+listType`` and ``+structType`` markers of k8s.io/api. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

Json = dict[str, Any]
FieldSet = dict[str, Any]

_MAP_KEYS: dict[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "volumes": ("name",),
    "imagePullSecrets": ("name",),
    "env": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "schedulingGates": ("name",),
    "resourceClaims": ("name",),
    "conditions": ("type",),
    "addresses": ("type",),
    "podIPs": ("ip",),
    "hostIPs": ("ip",),
    "ownerReferences": ("uid",),
    "secrets": ("name",),
}
SETS = frozenset(("finalizers", "podCIDRs"))
ATOMIC = frozenset(
    (
        "nodeSelector", "selector", "labelSelector", "namespaceSelector", "fieldRef", "resourceFieldRef",
        "secretKeyRef", "configMapKeyRef", "claimRef", "targetRef", "nodeRef", "involvedObject", "regarding", "related",
        "secretRef", "configMapRef", "fieldsV1",
    )
)  # fmt: skip
OWNED_METADATA = ("generateName", "labels", "annotations", "finalizers", "ownerReferences")
UPDATE, APPLY = "Update", "Apply"
_ABSENT: Any = object()
_MAX_INTERNED = 4096
_interned: dict[bytes, bytes] = {}

_decode_set: Callable[[bytes], FieldSet] = msgspec.json.Decoder(dict).decode
_encode_set = msgspec.json.Encoder().encode
encode_key = msgspec.json.Encoder(order="deterministic").encode


class Owner(NamedTuple):
    """One entry of managedFields. ``fields``: a FieldsV1 as JSON, a tenth of the memory of the decoded set."""

    manager: str
    subresource: str
    api_version: str
    time: str
    fields: bytes = b""
    operation: str = UPDATE

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What makes two entries one."""
        return (self.manager, self.operation, self.subresource, self.api_version)


def unpacked(fields: bytes) -> FieldSet:
    """A kept set, decoded."""
    return _decode_set(fields)


def packed(fields: FieldSet) -> bytes:
    """A set as it is kept; equal sets (of pods made from one template) are one object."""
    text = _encode_set(fields)
    known = _interned.get(text)
    if known is None:
        if len(_interned) >= _MAX_INTERNED:
            _interned.clear()
        known = _interned[text] = text
    return known


def list_keys(name: str, holder: str) -> tuple[str, ...] | None:
    if name == "ports":
        return ("containerPort", "protocol") if holder.endswith("ontainers") else ("port", "protocol")
    return _MAP_KEYS.get(name)


def items_of(values: list[Any], keys: tuple[str, ...]) -> dict[str, Any] | None:
    """The elements of a map-like list by their path; None when some element lacks its keys."""
    found: dict[str, Any] = {}
    for value in values:
        if not isinstance(value, dict):
            return None
        identity = {key: value[key] for key in keys if key in value}
        if not identity:
            return None
        found[f"k:{encode_key(identity).decode()}"] = value
    return found


def _full(value: Any, name: str, holder: str) -> FieldSet:
    """Everything under a value that was not there before."""
    if isinstance(value, dict):
        if not value or name in ATOMIC:
            return {}
        out: FieldSet = {".": {}}
        for key, child in value.items():
            if child is not None:
                out[f"f:{key}"] = _full(child, key, name)
        return out
    if isinstance(value, list) and value:
        return _full_list(value, name, holder)
    return {}


def _full_list(value: list[Any], name: str, holder: str) -> FieldSet:
    if name in SETS:
        return {".": {}, **{f"v:{encode_key(one).decode()}": {} for one in value}}
    keys = list_keys(name, holder)
    items = items_of(value, keys) if keys else None
    if items is None:
        return {}
    return {".": {}, **{path: _full(item, name, holder) for path, item in items.items()}}


def _added(old: Any, new: Any, name: str, holder: str) -> FieldSet | None:
    """What ``new`` sets that ``old`` did not, None for nothing. ``old`` may be absent."""
    if old is new or old == new:
        return None
    if old is _ABSENT:
        return _full(new, name, holder)
    if isinstance(new, dict) and name not in ATOMIC and (isinstance(old, dict) or old is None):
        return _added_fields(old or {}, new, name)
    if isinstance(new, list):
        keys = list_keys(name, holder)
        before = items_of(old or [], keys) if keys else None
        after = items_of(new, keys) if keys else None
        if before is not None and after is not None:
            out = {}
            for path, item in after.items():
                part = _added(before.get(path, _ABSENT), item, name, holder)
                if part is not None:
                    out[path] = part
            return out or None
        if name in SETS:
            return {f"v:{encode_key(one).decode()}": {} for one in new if one not in (old or ())} or None
    return {}


def _added_fields(old: Mapping[str, Any], new: Mapping[str, Any], name: str) -> FieldSet | None:
    out: FieldSet = {}
    for key, value in new.items():
        if value is None:
            continue
        part = _added(old.get(key, _ABSENT), value, key, name)
        if part is not None:
            out[f"f:{key}"] = part
    return out or None


def _top(old: Mapping[str, Any], new: Mapping[str, Any], parts: frozenset[str] | None, *, skip: str) -> FieldSet:
    """Fields of a whole object: metadata as far as clients own it, and ``parts`` (None = all but ``skip``)."""
    out: FieldSet = {}
    for key, value in new.items():
        if key == "metadata":
            owned = {one: value[one] for one in OWNED_METADATA if one in value}
            part = _added_fields(old.get("metadata") or {}, owned, "metadata")
        elif key == skip or value is None or (parts is not None and key not in parts):
            continue
        else:
            part = _added(old.get(key, _ABSENT), value, key, "")
        if part is not None:
            out[f"f:{key}"] = part
    return out


def fields_set(old: Mapping[str, Any], new: Mapping[str, Any], *, status_only: bool, skip_status: bool) -> FieldSet:
    """What a write from ``old`` to ``new`` sets; for a create ``old`` is the kind's blank object."""
    parts = frozenset(("status",)) if status_only else None
    return _top(old, new, parts, skip="status" if skip_status and not status_only else "")


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    out = dict(left)
    for key, child in right.items():
        out[key] = union(out[key], child) if key in out else child
    return out


def without(left: FieldSet, right: FieldSet) -> FieldSet:
    """``left`` less the paths of ``right``. A path is a leaf, or a ``.``: having children is not being a path."""
    out: FieldSet = {}
    for key, child in left.items():
        other = right.get(key)
        if other is None:
            out[key] = child
        elif child:
            rest = without(child, other or {".": {}})
            if rest:
                out[key] = rest
        elif other and "." not in other:
            out[key] = child
    return out


def _only_gone(removed: FieldSet, fields: FieldSet) -> FieldSet:
    """Paths that the old object had and the new one has not: a changed leaf is in both sets."""
    out: FieldSet = {}
    for key, child in removed.items():
        other = fields.get(key)
        if other is None:
            out[key] = child
        elif child and other:
            rest = _only_gone(child, other)
            if rest:
                out[key] = rest
    return out


def after_change(
    owners: tuple[Owner, ...],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    writer: Owner,
    *,
    status_only: bool,
    skip_status: bool,
) -> tuple[Owner, ...]:
    """The owners after ``writer`` (its ``fields`` are not looked at) turned ``before`` into ``after``."""
    fields = fields_set(before, after, status_only=status_only, skip_status=skip_status)
    removed = _only_gone(fields_set(after, before, status_only=status_only, skip_status=skip_status), fields)
    if not fields and not removed:
        return owners
    mine, mine_time = fields, writer.time
    out: list[Owner] = []
    for owner in owners:
        kept = without(_decode_set(owner.fields), removed)
        if owner.key == writer.key:
            # Only a write that set something is remembered as the manager's last.
            mine, mine_time = union(kept, fields), writer.time if fields else owner.time
            continue
        rest = without(kept, fields)
        if rest:
            out.append(owner._replace(fields=packed(rest)))
    if mine:
        out.append(writer._replace(fields=packed(mine), time=mine_time))
    return tuple(out)


def _order(owner: Owner) -> tuple[str, ...]:
    return (owner.operation, owner.time, owner.manager, owner.api_version, owner.subresource)


def shown(owners: tuple[Owner, ...]) -> bytes:
    """``managedFields`` as JSON, in the server's order."""
    entries = []
    for owner in sorted(owners, key=_order):
        entry: Json = {
            "manager": owner.manager,
            "operation": owner.operation,
            "apiVersion": owner.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": msgspec.Raw(owner.fields),
        }
        if owner.time:
            entry["time"] = owner.time
        if owner.subresource:
            entry["subresource"] = owner.subresource
        entries.append(entry)
    return msgspec.json.encode(entries)
