"""What a kind is to the machinery: its ``KindInfo`` and its ``KindStrategy``.

Why: the machinery (store, watch, patch, HTTP) knows no kind, and the kinds know no HTTP. This file is all they share.
The hooks mirror Kubernetes' rest strategies (``pkg/registry/*/strategy.go``); the order in which they run is

- create: ``decode``, ``default``, namespace life cycle, ``admit``, ``prepare_for_create``, ``validate``, ``warnings``;
- update (PUT and, after the patch was applied, PATCH): ``decode``, ``default``, ``admit``, ``prepare_for_update``,
  ``validate_update``, ``warnings``; of a subresource that is a view of the whole object (status, ephemeralcontainers,
  finalize ...): ``Subresource.prepare`` and ``.validate`` in place of the two.
- delete: ``admit_delete``, preconditions, ``before_delete``, ``grace_period_for_delete``, finalizers.

Objects are plain JSON dictionaries **without** ``kind`` and ``apiVersion`` (the machinery checks them, takes them off
and puts them back), and always have a ``metadata`` dictionary. Who may change what:

- ``obj`` belongs to the request: change it freely, in place. Parts of ``old`` may be put into it, but are then
  read-only, as ``old`` is and as is everything a ``StoreReader`` returns: those are the stored objects themselves.
- ``metadata`` (uid, creationTimestamp, resourceVersion, generation, deletion*, managedFields) is the machinery's.
  Names, labels, annotations, owner references and finalizers are validated there too.

It does not hold rules of any one kind (see ``twin/kinds``) and does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from twin.registry.status import FieldError

Json = dict[str, Any]

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
"""Verbs of an ordinary kind, in the order in which discovery prints them."""


class StoreReader(Protocol):
    """Look-ups in the store. ``resource`` is ``pods``, ``poddisruptionbudgets.policy``: plural and group.

    What it returns is read-only.
    """

    def get(self, resource: str, namespace: str, name: str) -> Json | None:
        """One object; ``namespace`` is empty for a kind without."""
        ...

    def list(self, resource: str, namespace: str = "") -> Iterable[Json]:
        """All objects of a namespace, or of all namespaces when it is empty, ordered by namespace and name."""
        ...


@dataclass(slots=True)
class RequestContext:
    """One request as strategies see it."""

    verb: str
    """``create update patch delete deletecollection get list watch``."""
    info: KindInfo
    namespace: str
    name: str
    reader: StoreReader
    now: str
    """RFC 3339, seconds, ``Z``."""
    now_s: float
    """The same as seconds since 1970."""
    subresource: str = ""
    user: str = "system:admin"
    groups: tuple[str, ...] = ("system:masters", "system:authenticated")
    user_uid: str = ""
    dry_run: bool = False
    manager: str = "unknown"
    query: Mapping[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    """Sent as ``Warning: 299 - "..."`` headers, in order."""
    unknown_fields: list[str] = field(default_factory=list)
    """Set by ``decode``: messages (``unknown field "spec.foo"``, ``duplicate field ...``). The machinery makes a 400
    (fieldValidation=Strict), warnings (Warn, the default) or nothing (Ignore) of them."""
    registry: ObjectRegistry | None = None
    """For the admission plugins that write (quota); None where only reading makes sense."""


@dataclass(frozen=True, slots=True)
class HandlerResult:
    """What a subresource handler answers: the HTTP code and the body (a Status, or an object to show)."""

    code: int
    body: Json


class ObjectRegistry(Protocol):
    """The in-process API of subresource handlers and of the kubelet simulation. Synchronous; refused: ``ApiError``."""

    def get(self, resource: str, namespace: str, name: str) -> Json | None:
        """The stored object, read-only."""
        ...

    def list(self, resource: str, namespace: str = "") -> Iterable[Json]:
        """The stored objects, read-only."""
        ...

    def guaranteed_update(
        self,
        ctx: RequestContext,
        resource: str,
        namespace: str,
        name: str,
        change: Callable[[Json], Json],
        *,
        audit_verb: str = "update",
    ) -> Json:
        """Replace one object by ``change(old)``, copy-on-write: ``old`` is read-only; return it for "no change".

        Strategy hooks are not run; metadata other than labels, annotations and finalizers is kept. With ``ctx.dry_run``
        nothing is stored. A change that leaves every field equal writes nothing. 404 where there is none.
        """
        ...

    def create(self, ctx: RequestContext, resource: str, namespace: str, obj: Json) -> Json:
        """Create through the kind's hooks."""
        ...

    def update(self, ctx: RequestContext, resource: str, namespace: str, name: str, obj: Json) -> Json:
        """PUT through the kind's hooks, with optimistic concurrency when ``obj`` has a resourceVersion."""
        ...

    def delete(self, ctx: RequestContext, resource: str, namespace: str, name: str, options: Json) -> Json:
        """Delete with DeleteOptions (preconditions, grace period, propagation) through the kind's hooks."""
        ...


Handler = Callable[[RequestContext, ObjectRegistry, str, Json], HandlerResult]
"""(context, registry, name, body) -> result. ``name`` is empty for a collection handler; GET gets an empty body."""

Prepare = Callable[[Json, Json, RequestContext], None]
Validate = Callable[[Json, Json, RequestContext], list[FieldError]]


@dataclass(frozen=True, slots=True)
class Subresource:
    """One subresource. Either a view of the whole object (``prepare`` set: GET, PUT and PATCH are the machinery's) or
    handlers: ``create`` (POST), ``get`` and ``update`` (PUT; PATCH is made of get, patch, update)."""

    name: str
    verbs: tuple[str, ...]
    kind: str = ""
    """Kind in discovery; empty = the parent's."""
    group: str = ""
    version: str = ""
    """Given in discovery only where it is another group's kind (Scale, Eviction, TokenRequest)."""
    prepare: Prepare | None = None
    validate: Validate | None = None
    owns_dropped: bool = False
    """The writer owns what it sent, also what ``prepare`` drops, so that a write that changes nothing else is still an
    update (the real strategies of these report no reset fields)."""
    create: Handler | None = None
    get: Handler | None = None
    update: Handler | None = None


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column of a Table; ``priority`` 0 is always shown, above only with ``-o wide``."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class KindInfo:
    """What discovery says of a kind and where it is served."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    storage: str = ""
    """``plural.group`` of the resource that stores it; empty = its own. A second version or a second group of one
    storage (events.k8s.io over core events) names the first here and converts (``to_storage``, ``from_storage``)."""
    gated: bool = False
    """Behind a feature gate that a real server has off by default. The document of its group alone, as recorded from
    such a server, leaves the version out; all other discovery has it."""
    storage_version_hash: str = ""
    """Opaque, eight bytes in base64, as discovery prints it."""

    @property
    def api_version(self) -> str:
        """``v1`` or ``GROUP/VERSION``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """``plural.group``, or ``plural`` in the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage_resource(self) -> str:
        """The resource whose objects these are."""
        return self.storage or self.resource


NAME_SUBDOMAIN = "subdomain"
"""RFC 1123 subdomain, up to 253 (most kinds)."""
NAME_LABEL = "label"
"""RFC 1123 label, up to 63 (namespaces)."""
NAME_LABEL_1035 = "label1035"
"""RFC 1035 label (services)."""
NAME_PATH_SEGMENT = "path"
"""Anything that fits into a path segment (RBAC)."""

DEFAULT_COLUMNS = (
    TableColumn(
        "Name",
        format="name",
        description=(
            "Name must be unique within a namespace. Is required when creating resources, although some resources may "
            "allow a client to request the generation of an appropriate name automatically. Name is primarily intended "
            "for creation idempotence and configuration definition. Cannot be updated. More info: "
            "https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
        ),
    ),
    TableColumn(
        "Created At",
        type="date",
        description=(
            "CreationTimestamp is a timestamp representing the server time when this object was created. It is not "
            "guaranteed to be set in happens-before order across separate operations. Clients may not set this value. "
            "It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. "
            "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
        ),
    ),
)
"""Columns of a kind that prints none of its own."""


class KindStrategy:
    """One kind. Every default is the plainest behaviour: stored as sent, spec changes bump the generation."""

    info: KindInfo
    subresources: tuple[Subresource, ...] = ()
    collection_create: Handler | None = None
    """POST to the collection is this function, and nothing is stored (bindings, tokenreviews, SubjectAccessReviews)."""
    name_rule: str = NAME_SUBDOMAIN
    allow_create_on_update: bool = False
    """PUT of an absent object creates it (leases, events)."""
    allow_unconditional_update: bool = True
    """PUT without a resourceVersion overwrites; False = 422 ``metadata.resourceVersion: must be specified``."""
    has_generation: bool = True
    """metadata.generation is 1 at creation and counts changes of everything but metadata and status."""
    resets_status: bool = True
    """The kind has a status subresource: ``status`` is dropped at creation and kept by main writes. Kinds that do more
    at creation (a phase, say) write it in ``prepare_for_create``."""
    created_with_status: bool = False
    """The kind has a status subresource, and may be created with a status. Nobody owns what is in that."""
    supported_fields: frozenset[str] = frozenset(("metadata.name", "metadata.namespace"))
    """Field selector keys; others are 400 ``field label not supported``."""
    field_label_error: str = ""
    """``.format(field=...)`` text of that 400; empty = the generic ``field label not supported: {field}`` wording."""
    table_columns: tuple[TableColumn, ...] = DEFAULT_COLUMNS
    merge_keys: Mapping[str, str] = {}
    """What a strategic merge patch merges: ``path.of.list`` -> merge key (``""`` = a set of scalars)."""
    returns_deleted: bool = False
    """DELETE answers with the object (pods, services, claims, service accounts ...), not with a Status."""
    default_propagation: str = "Background"
    """What a DELETE without propagationPolicy means; ``Orphan`` for Jobs and ReplicationControllers."""
    blank: Mapping[str, Any] = {}
    """What an empty object of the kind prints beside metadata (Go's fields without omitempty); bookmarks show it.
    ``{"spec": {}, "status": {}}`` for a pod."""
    deprecation: str = ""
    """A warning that goes with every answer on this kind (``v1 ComponentStatus is deprecated in v1.19+``)."""
    supports_strategic: bool = True
    """False for custom resources: 415 for a strategic merge patch."""
    go_type: str = ""
    """The row of the type table that the kind is stored as; empty where it has none."""
    schema: Json | None = None
    """What OpenAPI publishes of a kind without such a row, beside apiVersion, kind and metadata."""

    # --- writes ---------------------------------------------------------------------------------------------------

    def decode(self, obj: Json, ctx: RequestContext) -> None:
        """Typed decoding: raise ``bad_request`` for wrong types, drop unknown fields and report them in ``ctx``."""

    def to_storage(self, obj: Json) -> Json:
        """This version's object as the stored kind."""
        return obj

    def from_storage(self, obj: Json) -> Json:
        """A stored object as this version (a new dictionary where it differs)."""
        return obj

    def default(self, obj: Json) -> None:
        """Fill in defaults, as decoding does; on every write."""

    def admit(self, obj: Json, old: Json | None, ctx: RequestContext) -> None:
        """Admission plugins; ``old`` is None on create. Refuse with ``ApiError`` (403 mostly)."""

    @property
    def status_is_apart(self) -> bool:
        """Whether main writes own nothing of ``status`` (``GetResetFields``)."""
        return self.resets_status or self.created_with_status

    def prepare_for_create(self, obj: Json, ctx: RequestContext) -> None:
        """Set what a create does not take from the client; ``status`` is already dropped (``resets_status``)."""

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        """Errors of a new object, in the server's order."""
        return []

    def prepare_for_update(self, obj: Json, old: Json, ctx: RequestContext) -> None:
        """Keep what an update may not touch; the machinery already kept ``status`` (``resets_status``)."""

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        """Errors of a change."""
        return self.validate(obj, ctx)

    def prepare_for_status_update(self, obj: Json, old: Json, ctx: RequestContext) -> None:
        """The status subresource: the machinery then takes spec from ``old`` (``keep_for_status``)."""

    def keep_for_status(self, obj: Json, old: Json) -> None:
        """Take everything but ``status`` and ``metadata`` from ``old``; kinds that keep metadata too override this."""
        for key in [k for k in obj if k not in old and k != "status"]:
            del obj[key]
        for key, value in old.items():
            if key not in ("status", "metadata"):
                obj[key] = value

    def validate_status_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        """Errors of a status write."""
        return []

    def warnings(self, obj: Json, old: Json | None, ctx: RequestContext) -> list[str]:
        """Warnings about a valid object (deprecated or doubtful fields)."""
        return []

    def generation_changed(self, obj: Json, old: Json) -> bool:
        """Whether this update counts in metadata.generation: anything but metadata and status differs."""
        for key in obj.keys() | old.keys():
            if key not in ("metadata", "status", "apiVersion", "kind") and obj.get(key) != old.get(key):
                return True
        return False

    # --- deletes --------------------------------------------------------------------------------------------------

    def admit_delete(self, obj: Json, ctx: RequestContext) -> None:
        """Refuse a delete with ``ApiError`` (the system namespaces, the system priority classes)."""

    def before_delete(self, obj: Json, ctx: RequestContext) -> Json | None:
        """An object to store in place of deleting (a namespace turned Terminating), or None for the usual way."""
        return None

    def grace_period_for_delete(self, obj: Json, options: Json, ctx: RequestContext) -> int | None:
        """Seconds that the object stays with a deletionTimestamp; 0 = gone at once; None = the kind knows no grace."""
        return None

    def ready_to_delete(self, obj: Json) -> bool:
        """Whether a terminating object without metadata.finalizers may go (a namespace: no spec.finalizers either)."""
        return True

    # --- reads (of the stored form, also in a strategy that converts) -----------------------------------------------

    def selectable_fields(self, obj: Json) -> dict[str, str]:
        """Values of ``supported_fields`` beside metadata.name and metadata.namespace, which the machinery knows."""
        return {}

    def table_cells(self, obj: Json, now_s: float) -> list[Any]:
        """One row's cells, in the order of ``table_columns``."""
        meta = obj["metadata"]
        return [meta.get("name", ""), meta.get("creationTimestamp")]

    def table_row_conditions(self, obj: Json) -> list[Json]:
        """Conditions of one row (``Completed`` of a pod that ended); mostly none."""
        return []
