"""What flows into a container: environment variables, mounts, devices.

Source: ``pkg/apis/core/validation/validation.go`` (ValidateEnv, ValidateEnvFrom, ValidateVolumeMounts).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twin.kinds.rules.names import check, config_key, env_name
from twin.registry.status import FieldError, field_not_found, invalid, not_supported, required

Json = dict[str, Any]

_FIELD_PATHS = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP",
    "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
_RESOURCE_REFS = (
    "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage",
    "requests.memory",
)  # fmt: skip


def check_env(variables: Iterable[Json], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    for index, one in enumerate(variables):
        here = f"{path}[{index}]"
        if not one.get("name"):
            found.append(required(f"{here}.name"))
        else:
            found += check(f"{here}.name", one["name"], env_name)
        source = one.get("valueFrom")
        if source is not None:
            found += _check_env_source(one, source, f"{here}.valueFrom")
    return found


def _check_env_source(one: Json, source: Json, path: str) -> list[FieldError]:
    found: list[FieldError] = []
    kinds = [
        k for k in ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef") if k in source
    ]
    if "fieldRef" in kinds:
        where = source["fieldRef"].get("fieldPath", "")
        base = where.partition("[")[0]
        if not where:
            found.append(required(f"{path}.fieldRef.fieldPath"))
        elif where not in _FIELD_PATHS and base not in ("metadata.annotations", "metadata.labels"):
            allowed = ("metadata.name", "metadata.namespace", "metadata.uid", *_FIELD_PATHS[3:])
            found.append(not_supported(f"{path}.fieldRef.fieldPath", where, allowed))
    if "resourceFieldRef" in kinds:
        resource = source["resourceFieldRef"].get("resource", "")
        if not resource:
            found.append(required(f"{path}.resourceFieldRef.resource"))
        elif resource not in _RESOURCE_REFS and "hugepages-" not in resource:
            found.append(not_supported(f"{path}.resourceFieldRef.resource", resource, _RESOURCE_REFS))
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if kind in kinds:
            if not source[kind].get("key"):
                found.append(required(f"{path}.{kind}.key"))
            else:
                found += check(f"{path}.{kind}.key", source[kind]["key"], config_key)
    if not kinds:
        text = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        found.append(invalid(path, "", text))
    elif one.get("value"):
        found.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(kinds) > 1:
        found.append(invalid(path, "", "may not have more than one field specified at a time"))
    return found


def check_env_from(sources: Iterable[Json], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    for index, one in enumerate(sources):
        here = f"{path}[{index}]"
        if one.get("prefix"):
            found += check(f"{here}.prefix", one["prefix"], env_name)
        kinds = [kind for kind in ("configMapRef", "secretRef") if kind in one]
        for kind in kinds:
            if not one[kind].get("name"):
                found.append(required(f"{here}.{kind}.name"))
        if not kinds:
            found.append(invalid(here, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif len(kinds) > 1:
            found.append(invalid(here, "", "may not have more than one field specified at a time"))
    return found


def check_mounts(one: Json, volumes: set[str], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    seen: set[str] = set()
    for index, mount in enumerate(one.get("volumeMounts") or ()):
        here = f"{path}.volumeMounts[{index}]"
        name, where = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            found.append(required(f"{here}.name"))
        if name not in volumes:
            found.append(field_not_found(f"{here}.name", name))
        if not where:
            found.append(required(f"{here}.mountPath"))
        if where in seen:
            found.append(invalid(f"{here}.mountPath", where, "must be unique"))
        seen.add(where)
        if mount.get("subPath") and mount.get("subPathExpr"):
            found.append(
                invalid(f"{here}.subPathExpr", mount["subPathExpr"], "subPathExpr and subPath are mutually exclusive")
            )
        sub = mount.get("subPath", "")
        if sub.startswith("/"):
            found.append(invalid(f"{here}.subPath", sub, "must be a relative path"))
        elif ".." in sub.split("/"):
            found.append(invalid(f"{here}.subPath", sub, "must not contain '..'"))
    for index, device in enumerate(one.get("volumeDevices") or ()):
        here = f"{path}.volumeDevices[{index}]"
        if device.get("name", "") not in volumes:
            found.append(field_not_found(f"{here}.name", device.get("name", "")))
        if not device.get("devicePath"):
            found.append(required(f"{here}.devicePath"))
    return found
