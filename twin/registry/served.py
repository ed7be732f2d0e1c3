"""A kind as it is served: its strategy with everything that can be worked out once.

Heads, list prefixes and conversions are asked for on every request; here they are computed when the kind is added.
"""

from __future__ import annotations

from twin.registry.status import Json
from twin.registry.stored import StoredObject
from twin.registry.strategy import KindStrategy, Subresource


class ServedKind:
    """One (group, version, plural). ``custom`` marks a kind that a CustomResourceDefinition brought."""

    __slots__ = (
        "converts",
        "custom",
        "fields",
        "head",
        "info",
        "list_kind",
        "list_prefix",
        "namespaced",
        "resource",
        "storage",
        "strategy",
        "subresources",
    )

    def __init__(self, strategy: KindStrategy, *, custom: bool = False, list_kind: str = "") -> None:
        info = strategy.info
        self.strategy = strategy
        self.info = info
        self.custom = custom
        self.resource = info.resource
        self.storage = info.storage_resource
        self.namespaced = info.namespaced
        self.head = f'{{"kind":"{info.kind}","apiVersion":"{info.api_version}",'.encode()
        self.list_kind = list_kind or f"{info.kind}List"
        self.list_prefix = f'{{"kind":"{self.list_kind}","apiVersion":"{info.api_version}","metadata":'.encode()
        self.fields = strategy.supported_fields | {"metadata.name"}
        if info.namespaced:
            self.fields |= {"metadata.namespace"}
        self.subresources: dict[str, Subresource] = {one.name: one for one in strategy.subresources}
        self.converts = type(strategy).from_storage is not KindStrategy.from_storage

    def body(self, stored: StoredObject) -> bytes:
        """The JSON behind the head: the stored bytes, or those of this version's form."""
        if not self.converts:
            return stored.body
        return self.shown(stored).body

    def shown(self, stored: StoredObject) -> StoredObject:
        """The object in this version's form (itself where the version is the stored one)."""
        if not self.converts:
            return stored
        return StoredObject(stored.namespace, stored.name, stored.revision, self.strategy.from_storage(stored.obj))

    def whole(self, stored: StoredObject) -> bytes:
        """The complete object."""
        return self.head + self.body(stored)

    def whole_with_owners(self, stored: StoredObject) -> bytes:
        """The complete object with its managedFields."""
        return self.whole(stored) if self.converts else self.head + stored.body_with_owners()

    def wrap(self, obj: Json) -> Json:
        """``obj`` with kind and apiVersion."""
        return {"kind": self.info.kind, "apiVersion": self.info.api_version, **obj}
