"""ObjectMeta: what the server sets, what it checks, what an update may not change.

Every kind shares these rules. Sources: apiserver ``pkg/registry/rest/{create,update,meta}.go``; apimachinery
``pkg/api/validation/objectmeta.go`` and ``pkg/util/validation/validation.go``. Pure; randomness comes in as ``rng``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from random import Random
from typing import Any

from twin.registry.status import FieldError, forbidden_field, invalid, required, too_long
from twin.registry.strategy import NAME_LABEL, NAME_LABEL_1035, NAME_PATH_SEGMENT

Json = dict[str, Any]

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_MAX_GENERATED_BASE = 58
MAX_ANNOTATIONS_BYTES = 256 * 1024

_NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL_1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_QUALIFIED_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_LABEL_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_STANDARD_FINALIZERS = {"kubernetes", "orphan", "foregroundDeletion"}

_ORDER = ("name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp")
_TAIL = ("deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "ownerReferences", "finalizers")


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} bytes"


@lru_cache(maxsize=16384)
def name_errors(rule: str, name: str) -> tuple[str, ...]:
    """Why ``name`` cannot be an object's name under ``rule`` (NAME_*)."""
    if rule == NAME_PATH_SEGMENT:
        if name in (".", ".."):
            return (f"may not be '{name}'",)
        return tuple(f"may not contain '{part}'" for part in ("/", "%") if part in name)
    if rule == NAME_LABEL:
        limit, pattern, text = 63, _LABEL_1123, _LABEL_TEXT
    elif rule == NAME_LABEL_1035:
        limit, pattern, text = 63, _LABEL_1035, _LABEL_1035_TEXT
    else:
        limit, pattern, text = 253, _SUBDOMAIN, _SUBDOMAIN_TEXT
    errors: list[str] = []
    if len(name) > limit:
        errors.append(_too_long(limit))
    if not pattern.fullmatch(name):
        errors.append(text)
    return tuple(errors)


@lru_cache(maxsize=16384)
def qualified_name_errors(value: str) -> tuple[str, ...]:
    """Why ``value`` is no ``[prefix/]name``."""
    errors: list[str] = []
    parts = value.split("/")
    if len(parts) > 2:
        text = (
            f"a qualified name {_QUALIFIED_TEXT[len('name part ') :]} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')"
        )
        return (text,)
    name = parts[-1]
    if len(parts) == 2:
        prefix = parts[0]
        if not prefix:
            errors.append("prefix part must be non-empty")
        elif name_errors("subdomain", prefix):
            errors.extend(f"prefix part {text}" for text in name_errors("subdomain", prefix))
    if not name:
        errors.append("name part must be non-empty")
    elif len(name) > 63:
        errors.append(f"name part {_too_long(63)}")
    if not _NAME_PART.fullmatch(name):
        errors.append(_QUALIFIED_TEXT)
    return tuple(errors)


@lru_cache(maxsize=16384)
def label_value_errors(value: str) -> tuple[str, ...]:
    """Why ``value`` is no label value."""
    errors: list[str] = []
    if len(value) > 63:
        errors.append(_too_long(63))
    if value and not _NAME_PART.fullmatch(value):
        errors.append(_LABEL_VALUE_TEXT)
    return tuple(errors)


def label_errors(labels: Mapping[str, str], field: str) -> list[FieldError]:
    """Errors of a label map, at ``field``."""
    errors: list[FieldError] = []
    for key, value in labels.items():
        errors.extend(invalid(field, key, text) for text in qualified_name_errors(key))
        errors.extend(invalid(field, value, text) for text in label_value_errors(value))
    return errors


def _annotation_errors(annotations: Mapping[str, str]) -> list[FieldError]:
    errors: list[FieldError] = []
    size = 0
    for key, value in annotations.items():
        errors.extend(invalid("metadata.annotations", key, text) for text in qualified_name_errors(key.lower()))
        size += len(key.encode()) + len(value.encode())
    if size > MAX_ANNOTATIONS_BYTES:
        errors.append(too_long("metadata.annotations", MAX_ANNOTATIONS_BYTES))
    return errors


def _owner_errors(owners: list[Json]) -> list[FieldError]:
    errors: list[FieldError] = []
    controller = ""
    path = "metadata.ownerReferences"  # the real server names no index here
    for owner in owners:
        version = str(owner.get("apiVersion", ""))
        if not version.rpartition("/")[2]:
            errors.append(invalid(f"{path}.apiVersion", version, "version must not be empty"))
        if not owner.get("kind"):
            errors.append(invalid(f"{path}.kind", "", "must not be empty"))
        if not owner.get("name"):
            errors.append(invalid(f"{path}.name", "", "must not be empty"))
        if not owner.get("uid"):
            errors.append(invalid(f"{path}.uid", "", "must not be empty"))
        if owner.get("controller"):
            if controller:
                text = (
                    f"Only one reference can have Controller set to true. Found true in references for {controller} "
                    f"and {owner.get('name', '')}"
                )
                errors.append(invalid("metadata.ownerReferences", owners, text))
            controller = str(owner.get("name", ""))
    return errors


def _finalizer_errors(finalizers: list[str], *, builtin: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    for finalizer in finalizers:
        errors.extend(invalid("metadata.finalizers", finalizer, text) for text in qualified_name_errors(finalizer))
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        text = "finalizer orphan and foregroundDeletion cannot be both set"
        errors.append(invalid("metadata.finalizers", finalizers, text))
    if builtin:
        for index, finalizer in enumerate(finalizers):
            if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
                text = "name is neither a standard finalizer name nor is it fully qualified"
                errors.append(invalid(f"metadata.finalizers[{index}]", finalizer, text))
    return errors


def ordered(meta: Json) -> Json:
    """The fields in the server's order; empty ones and ``managedFields`` (not kept by the twin) are left out."""
    out: Json = {}
    for key in _ORDER:
        value = meta.get(key)
        if value:
            out[key] = value
    if meta.get("deletionTimestamp"):
        out["deletionTimestamp"] = meta["deletionTimestamp"]
        if meta.get("deletionGracePeriodSeconds") is not None:
            out["deletionGracePeriodSeconds"] = meta["deletionGracePeriodSeconds"]
    for key in _TAIL[2:]:
        value = meta.get(key)
        if value:
            out[key] = value
    return out


def generated_name(base: str, rng: Random) -> str:
    """``base`` and five letters."""
    return base[:_MAX_GENERATED_BASE] + "".join(rng.choices(_SUFFIX_LETTERS, k=5))


def new_uid(rng: Random) -> str:
    """A version 4 UUID."""
    bits = f"{(rng.getrandbits(128) & ~(0xF << 76) & ~(0x3 << 62)) | (0x4 << 76) | (0x2 << 62):032x}"
    return f"{bits[:8]}-{bits[8:12]}-{bits[12:16]}-{bits[16:20]}-{bits[20:]}"


def create_errors(meta: Json, *, rule: str, builtin: bool) -> list[FieldError]:
    """Errors of a new object's metadata (names, labels, annotations, owners, finalizers)."""
    errors: list[FieldError] = []
    base = meta.get("generateName")
    if base:
        # A prefix may end as no name may: the suffix makes it good again.
        errors.extend(invalid("metadata.generateName", base, text) for text in name_errors(rule, f"{base}a"))
    name = meta.get("name") or ""
    if not name:
        errors.append(required("metadata.name", "name or generateName is required"))
    else:
        errors.extend(invalid("metadata.name", name, text) for text in name_errors(rule, name))
    errors.extend(_map_errors(meta))
    if meta.get("finalizers"):
        errors.extend(_finalizer_errors(meta["finalizers"], builtin=builtin))
    return errors


def _map_errors(meta: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    if meta.get("labels"):
        errors.extend(label_errors(meta["labels"], "metadata.labels"))
    if meta.get("annotations"):
        errors.extend(_annotation_errors(meta["annotations"]))
    if meta.get("ownerReferences"):
        errors.extend(_owner_errors(meta["ownerReferences"]))
    return errors


def update_errors(meta: Json, old: Json, *, builtin: bool) -> list[FieldError]:
    """Errors of an update's metadata. The real server checks them in two places, so each comes as often as there."""
    errors = _map_errors(meta)
    if meta.get("finalizers"):
        errors.extend(_finalizer_errors(meta["finalizers"], builtin=builtin))
    if old.get("deletionTimestamp"):
        added = [one for one in meta.get("finalizers") or () if one not in (old.get("finalizers") or ())]
        if added:
            listed = ", ".join(f'"{one}"' for one in sorted(added))
            text = (
                "no new finalizers can be added if the object is being deleted, found new finalizers "
                f"[]string{{{listed}}}"
            )
            errors.append(forbidden_field("metadata.finalizers", text))
    errors.extend(
        invalid(f"metadata.{key}", meta.get(key), "field is immutable")
        for key in ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")
        if meta.get(key) != old.get(key)
    )
    errors.extend(_map_errors(meta))
    return errors + errors
