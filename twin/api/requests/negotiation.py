"""Which form of an answer the client takes. Source: apiserver ``endpoints/handlers/negotiation``. Pure.

Only JSON and YAML are written. A client that prefers protobuf and also takes JSON (kubectl's typed calls) gets JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from twin.registry.status import ApiError, status

JSON, YAML = "json", "yaml"
_MEDIA = {
    "application/json": JSON,
    "application/*": JSON,
    "*/*": JSON,
    "application/yaml": YAML,
}
_OBJECT, _TABLE, _PARTIAL, _PARTIAL_LIST = "", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"
_TRANSFORMS = frozenset((_TABLE, _PARTIAL, _PARTIAL_LIST))
ACCEPTED = "application/json, application/yaml, application/vnd.kubernetes.protobuf"


@dataclass(frozen=True, slots=True)
class Form:
    """``media``: json or yaml; ``transform``: empty, Table, PartialObjectMetadata(List); ``version`` of that."""

    media: str = JSON
    transform: str = ""
    version: str = "v1"

    @property
    def content_type(self) -> str:
        """The Content-Type of the answer."""
        return "application/yaml" if self.media == YAML else "application/json"


PLAIN = Form()


def _clauses(accept: str) -> list[tuple[str, dict[str, str]]]:
    found: list[tuple[float, str, dict[str, str]]] = []
    for clause in accept.split(","):
        pieces = [piece.strip() for piece in clause.split(";")]
        params = dict(piece.split("=", 1) for piece in pieces[1:] if "=" in piece)
        try:
            quality = float(params.pop("q", "1"))
        except ValueError:
            quality = 1.0
        if pieces[0]:
            found.append((quality, pieces[0].lower(), params))
    found.sort(key=lambda entry: -entry[0])
    return [(media, params) for _, media, params in found]


@lru_cache(maxsize=512)
def choose_form(accept: str) -> Form:
    """The first clause that can be met. Refused: 406."""
    if not accept or accept == "application/json":
        return PLAIN
    transformed = False
    for media_type, params in _clauses(accept):
        media = _MEDIA.get(media_type)
        if media is None:
            continue
        wanted = params.get("as", "")
        if not wanted:
            return Form(media=media)
        transformed = True
        group, version = params.get("g", ""), params.get("v", "")
        if wanted in _TRANSFORMS and group == "meta.k8s.io" and version in ("v1", "v1beta1"):
            return Form(media=media, transform=wanted, version=version)
    if transformed:
        raise not_acceptable(f"only the following media types are accepted: {ACCEPTED}")
    body = status(406, "NotAcceptable", f"406: Not Acceptable\n\nAvailable representations: {ACCEPTED}")
    del body["code"]
    raise ApiError({**body, "details": {}, "code": 406})


def not_acceptable(message: str) -> ApiError:
    """406 NotAcceptable."""
    return ApiError(status(406, "NotAcceptable", message))


@lru_cache(maxsize=512)
def wants_aggregated_discovery(accept: str) -> str:
    """``v2`` or ``v2beta1`` when the client asks for aggregated discovery first, else empty."""
    for media_type, params in _clauses(accept):
        if media_type != "application/json":
            continue
        if params.get("as") == "APIGroupDiscoveryList" and params.get("g") == "apidiscovery.k8s.io":
            version = params.get("v", "")
            return version if version in ("v2", "v2beta1") else ""
        if "as" not in params:
            return ""
    return ""
