"""The strategy of a kind whose Go type is in ``go_types.json``: typed decoding, and what most such kinds share.

Why: every built-in kind decodes the same way; the files beside this one add only what is special to their kinds.
"""

from __future__ import annotations

from typing import Any

from twin.kinds.rules.codec import TYPES, DecodeError
from twin.kinds.rules.printing import Printed
from twin.registry.status import ApiError, bad_request
from twin.registry.strategy import KindInfo, KindStrategy, RequestContext, Subresource

Json = dict[str, Any]

_UNKNOWN_FIELD = '"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"'
STATUS_VERBS = ("get", "patch", "update")


class TypedStrategy(KindStrategy):
    """A kind stored as its Go type would be."""

    table: Printed | None = None
    """What ``kubectl get`` shows; None = name and creation time."""

    def __init_subclass__(cls) -> None:
        """Work out what an empty object prints: Go's fields without omitempty."""
        super().__init_subclass__()
        if cls.table is not None:
            cls.table_columns = cls.table.columns
        if cls.go_type and "go_type" in cls.__dict__:
            cls.blank = blank_object(cls.go_type)
            cls.merge_keys = TYPES.merge_keys(cls.go_type)
        if cls.supported_fields == TypedStrategy.supported_fields:
            cls.field_label_error = _UNKNOWN_FIELD

    def __init__(self) -> None:
        if self.resets_status:
            self.subresources = (self.status_subresource(), *self.subresources)

    def table_cells(self, obj: Json, now_s: float) -> list[Any]:
        return super().table_cells(obj, now_s) if self.table is None else self.table.cells(obj, now_s)

    def decode(self, obj: Json, ctx: RequestContext) -> None:
        decode_into(self.go_type, self.info, obj, ctx)

    def prepare_status(self, obj: Json, old: Json, ctx: RequestContext) -> None:
        """The status subresource's ``prepare``: everything but metadata and status is taken from ``old``."""
        self.keep_for_status(obj, old)
        self.prepare_for_status_update(obj, old, ctx)

    def status_subresource(self) -> Subresource:
        """``status`` as a view of the whole object."""
        return Subresource("status", STATUS_VERBS, prepare=self.prepare_status, validate=self.validate_status_update)


def blank_object(go_type: str) -> Json:
    """What an object with nothing but metadata prints beside it."""
    empty, _ = TYPES.decode(go_type, {})
    return {key: value for key, value in empty.items() if key not in ("metadata", "kind", "apiVersion")}


def decode_into(go_type: str, info: KindInfo, obj: Json, ctx: RequestContext) -> None:
    """Decode ``obj`` in place; unknown fields go to ``ctx``. 400 for what does not fit."""
    try:
        decoded, unknown = TYPES.decode(go_type, obj)
    except DecodeError as error:
        raise bad_request(
            f'{info.kind} in version "{info.version}" cannot be handled as a {info.kind}: {error}'
        ) from error
    decoded.pop("kind", None)
    decoded.pop("apiVersion", None)
    decoded["metadata"].pop("selfLink", None)
    obj.clear()
    obj.update(decoded)
    ctx.unknown_fields.extend(unknown)


def decode_body(go_type: str, kind: str, version: str, body: Json, ctx: RequestContext) -> Json:
    """The typed form of what is POSTed to a subresource. 400 for what does not fit, or is unknown under Strict."""
    subject = f'{kind} in version "{version}" cannot be handled as a {kind}'
    try:
        decoded, unknown = TYPES.decode(go_type, body)
    except DecodeError as error:
        raise bad_request(f"{subject}: {error}") from error
    mode = ctx.query.get("fieldValidation") or "Warn"
    if unknown and mode == "Strict":
        raise bad_request(f"{subject}: strict decoding error: {', '.join(unknown)}")
    if mode == "Warn":
        ctx.warnings.extend(unknown)
    return decoded


def expect_kind(body: Json, accepted: tuple[tuple[str, str], ...], kind: str, go_type: str) -> None:
    """400 unless ``body`` names one of the accepted (apiVersion, kind) pairs, or neither."""
    version, given = body.get("apiVersion") or accepted[0][0], body.get("kind") or accepted[0][1]
    if (version, given) in accepted:
        return
    short = version.rpartition("/")[2]
    detail = f"converting ({short}.{given}) to ({go_type}): unknown conversion"
    raise bad_request(f'{given} in version "{short}" cannot be handled as a {kind}: {detail}')


def expect_namespace(body: Json, ctx: RequestContext) -> None:
    """400 when the body names another namespace than the path."""
    given = (body.get("metadata") or {}).get("namespace")
    if given and given != ctx.namespace:
        raise namespace_mismatch()


def namespace_mismatch() -> ApiError:
    """The body's namespace is not the path's."""
    return bad_request("the namespace of the provided object does not match the namespace sent on the request")
