"""ConfigMaps and Secrets: keys, size, immutability.

Sources: ``pkg/apis/core/validation`` (ValidateConfigMap, ValidateSecret), ``pkg/apis/core/v1/conversion.go`` for
stringData.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any

from twin.kinds.rules.names import check, config_key
from twin.kinds.rules.printing import printed
from twin.kinds.rules.typed import TypedStrategy
from twin.registry.status import FieldError, forbidden_field, invalid, required, too_long
from twin.registry.strategy import KindInfo, RequestContext

Json = dict[str, Any]

_MAX_BYTES = 1024 * 1024
_IMMUTABLE_TEXT = "field is immutable when `immutable` is set"
_REQUIRED_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_TOKEN_TYPE, _BASIC_AUTH = "kubernetes.io/service-account-token", "kubernetes.io/basic-auth"
_ACCOUNT_ANNOTATION = "kubernetes.io/service-account.name"


def _check_frozen(obj: Json, old: Json, parts: tuple[str, ...]) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    found = []
    if not obj.get("immutable"):
        found.append(forbidden_field("immutable", _IMMUTABLE_TEXT))
    return found + [forbidden_field(part, _IMMUTABLE_TEXT) for part in parts if obj.get(part) != old.get(part)]


class ConfigMapStrategy(TypedStrategy):
    """Core v1 ConfigMap."""

    info = KindInfo("", "v1", "ConfigMap", "configmaps", "configmap", True, short_names=("cm",))
    go_type = "core/v1.ConfigMap"
    has_generation = False
    resets_status = False
    table = printed("Name", ("Data", lambda o: len(o.get("data") or ()) + len(o.get("binaryData") or ())), "Age")

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        found: list[FieldError] = []
        data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
        for key in sorted(data):
            found += check(f"data[{key}]", key, config_key)
            if key in binary:
                found.append(invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
        for key in sorted(binary):
            found += check(f"binaryData[{key}]", key, config_key)
        size = sum(len(value.encode()) for value in data.values())
        if size + sum(len(b64decode(value or "")) for value in binary.values()) > _MAX_BYTES:
            found.append(too_long("[]", _MAX_BYTES))
        return found

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        return _check_frozen(obj, old, ("data", "binaryData")) + self.validate(obj, ctx)


class SecretStrategy(TypedStrategy):
    """Core v1 Secret."""

    info = KindInfo("", "v1", "Secret", "secrets", "secret", True)
    go_type = "core/v1.Secret"
    has_generation = False
    resets_status = False
    supported_fields = frozenset(("metadata.name", "metadata.namespace", "type"))
    table = printed("Name", "Type=type", ("Data", lambda obj: len(obj.get("data") or ())), "Age")

    def default(self, obj: Json) -> None:
        obj.setdefault("type", "Opaque")
        plain = obj.pop("stringData", None)
        if plain:
            obj["data"] = {**(obj.get("data") or {}), **{k: b64encode(v.encode()).decode() for k, v in plain.items()}}

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        found: list[FieldError] = []
        data, kind = obj.get("data") or {}, obj["type"]
        for key in sorted(data):
            found += check(f"data[{key}]", key, config_key)
        if sum(len(b64decode(value or "")) for value in data.values()) > _MAX_BYTES:
            found.append(too_long("data", _MAX_BYTES))
        found += [required(f"data[{key}]") for key in _REQUIRED_KEYS.get(kind, ()) if key not in data]
        if kind.startswith("kubernetes.io/dockerc") and not found:
            key = _REQUIRED_KEYS[kind][0]
            if not _is_json(data[key]):
                found.append(invalid(f"data[{key}]", "<secret contents redacted>", "invalid json"))
        if kind == _BASIC_AUTH and not data.keys() & {"username", "password"}:
            found += [required("data[%username]"), required("data[%password]")]
        if kind == _TOKEN_TYPE and not (obj["metadata"].get("annotations") or {}).get(_ACCOUNT_ANNOTATION):
            found.append(required(f"metadata.annotations[{_ACCOUNT_ANNOTATION}]"))
        return found

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        found: list[FieldError] = []
        if obj["type"] != old["type"]:
            found.append(invalid("type", obj["type"], "field is immutable"))
        found += _check_frozen(obj, old, ("data",))
        return found or self.validate(obj, ctx)

    def selectable_fields(self, obj: Json) -> dict[str, str]:
        return {"type": obj["type"]}


def _is_json(encoded: str) -> bool:
    try:
        json.loads(b64decode(encoded))
    except ValueError:
        return False
    return True
