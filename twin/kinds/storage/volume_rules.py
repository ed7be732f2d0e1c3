"""Validation of a pod's volumes: names, exactly one source each, the sources that tests and users really write.

Source: ``pkg/apis/core/validation/validation.go`` (ValidateVolumes, validateVolumeSource). Sources of storage vendors
are accepted as they are: no scheduler reads them, and most are gone from Kubernetes.
"""

from __future__ import annotations

from typing import Any

from twin.kinds.rules.names import check, config_key, dns_label
from twin.kinds.rules.resources import check_not_negative_amount
from twin.registry.status import FieldError, duplicate, forbidden_field, invalid, not_supported, required

Json = dict[str, Any]

_HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
_MODE_TEXT = "must be a number between 0 and 0777 (octal), both inclusive"


def check_volumes(volumes: list[Json], field: str, pod_name: str) -> tuple[set[str], list[FieldError]]:
    """(names of the good volumes, errors)."""
    names: set[str] = set()
    found: list[FieldError] = []
    for index, volume in enumerate(volumes):
        here, name = f"{field}[{index}]", volume.get("name", "")
        errors = _check_source(volume, here)
        if not name:
            errors.append(required(f"{here}.name"))
        else:
            errors += check(f"{here}.name", name, dns_label)
        if name in names:
            errors.append(duplicate(f"{here}.name", name))
        if errors:
            found += errors
        else:
            names.add(name)
    return names, found


def _check_source(volume: Json, field: str) -> list[FieldError]:
    sources = [key for key in volume if key != "name"]
    if not sources:
        return [required(field, "must specify a volume type")]
    found = [forbidden_field(f"{field}.{extra}", "may not specify more than 1 volume type") for extra in sources[1:]]
    kind = sources[0]
    here, source = f"{field}.{kind}", volume[kind]
    if kind == "emptyDir":
        if source.get("sizeLimit"):
            found += check_not_negative_amount(source["sizeLimit"], f"{here}.sizeLimit")
    elif kind == "hostPath":
        found += check_host_path(source, here)
    elif kind == "secret":
        if not source.get("secretName"):
            found.append(required(f"{here}.secretName"))
        found += _check_mode(source, here) + _check_key_paths(source, here)
    elif kind == "configMap":
        if not source.get("name"):
            found.append(required(f"{here}.name"))
        found += _check_mode(source, here) + _check_key_paths(source, here)
    elif kind == "persistentVolumeClaim":
        if not source.get("claimName"):
            found.append(required(f"{here}.claimName"))
    elif kind == "nfs":
        for name in ("server", "path"):
            if not source.get(name):
                found.append(required(f"{here}.{name}"))
    elif kind == "projected":
        found += _check_mode(source, here)
    elif kind == "csi":
        if not source.get("driver"):
            found.append(required(f"{here}.driver"))
    elif kind == "ephemeral" and not source.get("volumeClaimTemplate"):
        found.append(required(f"{here}.volumeClaimTemplate"))
    return found


def check_host_path(source: Json, field: str) -> list[FieldError]:
    """validateHostPathVolumeSource."""
    path = source.get("path", "")
    if not path:
        return [required(f"{field}.path")]
    found: list[FieldError] = []
    if ".." in path.split("/"):
        found.append(invalid(f"{field}.path", path, "must not contain '..'"))
    if source.get("type", "") not in _HOST_PATH_TYPES:
        found.append(not_supported(f"{field}.type", source["type"], _HOST_PATH_TYPES))
    return found


def _check_mode(source: Json, field: str) -> list[FieldError]:
    mode = source.get("defaultMode")
    return [invalid(f"{field}.defaultMode", mode, _MODE_TEXT)] if mode is not None and not 0 <= mode <= 0o777 else []


def _check_key_paths(source: Json, field: str) -> list[FieldError]:
    found: list[FieldError] = []
    for index, item in enumerate(source.get("items") or ()):
        here = f"{field}.items[{index}]"
        if not item.get("key"):
            found.append(required(f"{here}.key"))
        else:
            found += check(f"{here}.key", item["key"], config_key)
        if not item.get("path"):
            found.append(required(f"{here}.path"))
        mode = item.get("mode")
        if mode is not None and not 0 <= mode <= 0o777:
            found.append(invalid(f"{here}.mode", mode, _MODE_TEXT))
    return found


def default_claim(obj: Json) -> None:
    """SetDefaults_PersistentVolumeClaim and its spec's."""
    obj["spec"].setdefault("volumeMode", "Filesystem")
    status = obj.setdefault("status", {})
    if not status.get("phase"):
        status["phase"] = "Pending"
