"""Request bodies: media types, JSON, fields named twice, whether kind and apiVersion fit the URL. Pure but for YAML.

Source: apiserver ``endpoints/handlers/{create,negotiation}``; the texts are Go's decoder's, as far as clients see them.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from twin.kinds.rules.codec import TYPES, DecodeError
from twin.protobuf.decoding import MEDIA_TYPE
from twin.protobuf.decoding import decode as decode_protobuf
from twin.registry.served import ServedKind
from twin.registry.status import ApiError, Json, bad_request, invalid, status, unprocessable

ACCEPTED = "application/json, application/yaml, application/vnd.kubernetes.protobuf"

_SHOWN_CHARS = 30
_decode = msgspec.json.Decoder().decode
_POSITION = re.compile(r"\(byte (\d+)\)")


def unsupported_media() -> ApiError:
    """415 of a body in a format that is not read here."""
    text = f"the body of the request was in an unknown format - accepted media types include: {ACCEPTED}"
    return ApiError(status(415, "UnsupportedMediaType", text))


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def parse(raw: bytes, content_type: str) -> Any:
    """JSON, YAML or protobuf. Refused: 415; ``ValueError`` with a Go-like text when it does not parse."""
    media = _media_type(content_type)
    if media in ("", "application/json", "application/octet-stream"):
        return parse_json(raw)
    if media in ("application/yaml", "text/yaml", "application/x-yaml"):
        from twin.api.requests.yaml_bodies import parse_yaml

        return parse_yaml(raw)
    if media == MEDIA_TYPE:
        return decode_protobuf(raw)
    raise unsupported_media()


def parse_json(raw: bytes) -> Any:
    """JSON; ``ValueError`` with a Go-like text when it does not parse."""
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        text = str(error)
        found = _POSITION.search(text)
        if "truncated" in text or not raw.strip():
            raise ValueError("unexpected end of JSON input") from None
        at = int(found.group(1)) if found else 0
        character = raw[at : at + 1].decode("latin-1")
        place = "object key string" if b"{" in raw[:at] else "value"
        raise ValueError(f"invalid character '{character}' looking for beginning of {place}") from None


def _shown(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace")
    if not text:
        return "<empty>"
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]} ..."


def decode_object(raw: bytes, content_type: str, kind: ServedKind) -> Json:
    """A body as an object of ``kind``, without kind and apiVersion. Refused: 400, 415, 422."""
    return decode_counted(raw, content_type, kind)[0]


def decode_counted(raw: bytes, content_type: str, kind: ServedKind) -> tuple[Json, int]:
    """``decode_object``, and how many of the two members were there to take off."""
    info = kind.info
    prefix = f"the object provided is unrecognized (must be of type {info.kind}): couldn't get version/kind; "
    try:
        obj = parse(raw, content_type)
    except ValueError as error:
        raise bad_request(f"{prefix}json parse error: {error} ({_shown(raw)})") from None
    if not isinstance(obj, dict):
        name = "array" if isinstance(obj, list) else "string" if isinstance(obj, str) else "number"
        struct = (
            'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
        )
        text = f"json: cannot unmarshal {name} into Go value of type {struct}"
        raise bad_request(f"{prefix}json parse error: {text} ({raw[:8].hex()})")
    members = len(obj)
    own_kind, own_version = obj.pop("kind", None), obj.pop("apiVersion", None)
    taken_off = members - len(obj)
    if kind.custom:
        _check_custom(obj, own_kind, own_version, kind, raw)
    elif (own_kind and own_kind != info.kind) or (own_version and own_version != info.api_version):
        raise _cannot_be_handled(own_kind or info.kind, own_version or info.api_version, kind)
    return obj, taken_off


def _cannot_be_handled(own_kind: Any, own_version: Any, kind: ServedKind) -> ApiError:
    info = kind.info
    if own_version == info.api_version:
        reason = f"converting ({info.version}.{own_kind}) to ({info.group or 'core'}.{info.kind}): unknown conversion"
    else:
        reason = (
            f'no kind "{own_kind}" is registered for version "{own_version}" in scheme '
            '"k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"'
        )
    return bad_request(f'{own_kind} in version "{info.version}" cannot be handled as a {info.kind}: {reason}')


def _check_custom(obj: Json, own_kind: Any, own_version: Any, kind: ServedKind, raw: bytes) -> None:
    info = kind.info
    if not own_kind:
        text = raw.decode("utf-8", "replace")
        raise bad_request(
            f"the object provided is unrecognized (must be of type {info.kind}): Object 'Kind' is missing in '{text}' "
            f"({_shown(raw)})"
        )
    if own_version and own_version != info.api_version:
        text = (
            f"the API version in the data ({own_version}) does not match the expected API version ({info.api_version})"
        )
        # Decoded as a version that nobody serves, the object has no field but its metadata.
        unknown = [f'unknown field "{name}"' for name in obj if name != "metadata"]
        raise ApiError(status(400, "BadRequest", text), warnings=unknown)
    if own_kind != info.kind:
        meta = obj.get("metadata")
        name = str(meta.get("name", "")) if isinstance(meta, dict) else ""
        raise unprocessable(own_kind, info.group, name, [invalid("kind", own_kind, f"must be {info.kind}")])


def check_envelope(body: Json) -> None:
    """Refused: 400 when kind or apiVersion is no string; whether they fit is said by who takes the body."""
    for field in ("kind", "apiVersion"):
        if not isinstance(body.get(field) or "", str):
            text = f"json: cannot unmarshal {type(body[field]).__name__} into Go struct field .{field} of type string"
            raise bad_request(f"couldn't get version/kind; json parse error: {text}")


def decode_typed(body: Json, group: str, version: str, kind: str) -> Json:
    """A body that is not stored (DeleteOptions, a review) as its Go type. Refused: 400.

    A body of another kind is handed on as it is: who takes it refuses it with its own words.
    """
    check_envelope(body)
    go_type = f"{group.partition('.')[0] or 'core'}/{version}.{kind}"
    if body.get("kind", kind) != kind or go_type not in TYPES:
        return body
    try:
        decoded, _ = TYPES.decode(go_type, body)
    except DecodeError as error:
        raise bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {error}') from None
    return decoded


def decode_patch(raw: bytes) -> Any:
    """A patch document. Refused: 400."""
    try:
        return parse_json(raw)
    except ValueError as error:
        raise bad_request(f"error decoding patch: {error}") from None


def decode_optional(raw: bytes, content_type: str) -> Json:
    """A body that may be missing (DeleteOptions, subresources). Refused: 400, 415."""
    if not raw:
        return {}
    try:
        obj = parse(raw, content_type)
    except ValueError as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None
    if not isinstance(obj, dict):
        raise bad_request("couldn't get version/kind; json parse error: json: cannot unmarshal into Go value")
    return obj


class _Object(list[tuple[str, Any]]):
    """The members of an object as they were written."""


def _count_keys(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(_count_keys(child) for child in value.values() if isinstance(child, dict | list))
    return sum(_count_keys(child) for child in value if isinstance(child, dict | list))


def _find(value: Any, path: str, found: list[str]) -> None:
    if isinstance(value, _Object):
        seen: set[str] = set()
        for key, child in value:
            where = f"{path}.{key}" if path else key
            if key in seen:
                found.append(f'duplicate field "{where}"')
            seen.add(key)
            _find(child, where, found)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            _find(child, f"{path}[{index}]", found)


def duplicate_fields(raw: bytes, taken_off: int, obj: Any) -> list[str]:
    """Messages about fields that ``raw`` names twice; ``obj`` is what it parsed to, less ``taken_off`` members."""
    if not raw.startswith(b"{") or raw.count(b'":') <= _count_keys(obj) + taken_off:
        return []
    try:
        pairs = json.loads(raw, object_pairs_hook=_Object)
    except ValueError:
        return []
    found: list[str] = []
    _find(pairs, "", found)
    return found
