"""The registry: all served kinds over one store, called by the HTTP face and, in process, by the cluster model.

Synchronous from end to end: a request is one call, so nothing interleaves with it. Refused requests raise ``ApiError``.
The work is in ``creating.py``, ``updating.py`` and ``deleting.py``, over the store and the subscribers of
``changes.py``; here they meet the kinds. It does not know HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from random import Random

from twin.patches.json_patch import merge_patch
from twin.patches.strategic_patch import strategic_patch
from twin.registry import creating, deleting, updating
from twin.registry.apply.owning import owners_after
from twin.registry.changes import ChangeStore
from twin.registry.served import ServedKind
from twin.registry.status import Json, not_found, path_not_found
from twin.registry.store import ObjectStore
from twin.registry.stored import StoredObject
from twin.registry.strategy import KindStrategy, RequestContext


class TwinRegistry(ChangeStore):
    """All kinds, all objects.

    ``clock`` gives seconds since 1970, ``rng`` uids and name suffixes; both are passed in so that runs repeat.
    """

    def __init__(
        self,
        strategies: Iterable[KindStrategy],
        *,
        clock: Callable[[], float],
        rng: Random,
        window: int = 16384,
    ) -> None:
        super().__init__(ObjectStore(window=window), clock, rng)
        self._kinds: dict[tuple[str, str], dict[str, ServedKind]] = {}
        self._stored: dict[str, ServedKind] = {}
        self.kubernetes = "1.36"
        """The release that is answered for."""
        self._second = -1
        self._second_text = ""
        for strategy in strategies:
            self.add_kind(ServedKind(strategy))

    # --- kinds ----------------------------------------------------------------------------------------------------

    def add_kind(self, kind: ServedKind) -> None:
        """Serve a kind from now on (custom resources come and go)."""
        self._kinds.setdefault((kind.info.group, kind.info.version), {})[kind.info.plural] = kind
        if kind.resource == kind.storage and (kind.custom or kind.resource not in self._stored):
            self._stored[kind.resource] = kind

    def remove_kind(self, kind: ServedKind) -> None:
        """Stop serving a kind; its objects stay until the store is told to drop them."""
        plurals = self._kinds.get((kind.info.group, kind.info.version), {})
        plurals.pop(kind.info.plural, None)
        if not plurals:
            self._kinds.pop((kind.info.group, kind.info.version), None)
        if self._stored.get(kind.resource) is kind:
            del self._stored[kind.resource]

    def find(self, group: str, version: str, plural: str) -> ServedKind | None:
        """The kind behind a path."""
        plurals = self._kinds.get((group, version))
        return None if plurals is None else plurals.get(plural)

    def group_versions(self) -> Iterable[tuple[str, str]]:
        """All served (group, version) pairs, in the order in which they were added."""
        return self._kinds.keys()

    def kinds_of(self, group: str, version: str) -> list[ServedKind]:
        """The kinds of one group and version, by plural."""
        return [kind for _, kind in sorted(self._kinds.get((group, version), {}).items())]

    def kind(self, resource: str) -> ServedKind:
        """The stored kind of ``plural.group``. Refused: 404."""
        kind = self._stored.get(resource)
        if kind is None:
            raise path_not_found()
        return kind

    def stored_kinds(self) -> list[ServedKind]:
        """Every kind that objects are stored as, once each."""
        return list(self._stored.values())

    # --- requests -------------------------------------------------------------------------------------------------

    def now_text(self, now_s: float) -> str:
        """RFC 3339 with whole seconds; formatted once per second."""
        second = int(now_s)
        if second != self._second:
            self._second = second
            self._second_text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return self._second_text

    def context(
        self,
        verb: str,
        resource: str | ServedKind,
        namespace: str = "",
        name: str = "",
        *,
        user: str = "system:admin",
        dry_run: bool = False,
        manager: str = "unknown",
    ) -> RequestContext:
        """A request's context; ``resource`` is ``plural.group`` or a kind."""
        kind = self.kind(resource) if isinstance(resource, str) else resource
        now_s = self.clock()
        return RequestContext(
            verb=verb,
            info=kind.info,
            namespace=namespace,
            name=name,
            reader=self,
            now=self.now_text(now_s),
            now_s=now_s,
            user=user,
            dry_run=dry_run,
            manager=manager,
            registry=self,
        )

    def stored(self, kind: ServedKind, namespace: str, name: str) -> StoredObject:
        """One object. Refused: 404."""
        found = self.store.shelf(kind.storage).get(f"{namespace}/{name}" if namespace else name)
        if found is None:
            raise not_found(kind.info.plural, kind.info.group, name)
        return found

    def get(self, resource: str, namespace: str, name: str) -> Json | None:
        """One object or None; read-only."""
        found = self.store.shelf(resource).get(f"{namespace}/{name}" if namespace else name)
        return None if found is None else found.obj

    def list(self, resource: str, namespace: str = "") -> Iterable[Json]:
        """All objects of a namespace or of all, by key; read-only."""
        return (one.obj for one in self.store.shelf(resource).select(namespace))

    def create(self, ctx: RequestContext, resource: str, namespace: str, obj: Json) -> Json:
        """Create through the kind's hooks; ``obj`` is taken over."""
        del namespace  # ctx names it; the protocol's signature shows it to the reader of the call
        return creating.create(self, ctx, self.kind(resource), obj).obj

    def update(self, ctx: RequestContext, resource: str, namespace: str, name: str, obj: Json) -> Json:
        """PUT through the kind's hooks; ``obj`` is taken over."""
        kind = self.kind(resource)
        return updating.update(self, ctx, kind, self.stored(kind, namespace, name), obj).obj

    def patch(
        self,
        ctx: RequestContext,
        resource: str,
        namespace: str,
        name: str,
        change: Json,
        *,
        strategy: str = "merge",
        subresource: str = "",
    ) -> Json:
        """PATCH through the kind's hooks; ``strategy`` is ``merge`` or ``strategic``."""
        kind = self.kind(resource)
        old = self.stored(kind, namespace, name)
        if strategy == "merge":
            obj = merge_patch(old.fresh(), change)
        else:
            obj = strategic_patch(old.fresh(), change, kind.strategy.merge_keys)
        view = kind.subresources[subresource] if subresource else None
        return updating.update(self, ctx, kind, old, obj, subresource=view, patch=True).obj

    def delete(self, ctx: RequestContext, resource: str, namespace: str, name: str, options: Json) -> Json:
        """Delete with DeleteOptions; the object as it is afterwards."""
        kind = self.kind(resource)
        return deleting.delete(self, ctx, kind, self.stored(kind, namespace, name), options).stored.obj

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
        """Replace by ``change(old)`` without the kind's hooks (see the protocol in ``strategy.py``)."""
        kind = self.kind(resource)
        old = self.stored(kind, namespace, name)
        before = old.obj
        after = change(before)
        if after is before or after == before:
            return before
        kept = before["metadata"]
        meta = {**after["metadata"], "resourceVersion": kept["resourceVersion"], "uid": kept["uid"]}
        after = {**after, "metadata": meta}
        if not ctx.dry_run:
            self.write(ctx, kind, old.namespace, name, after, audit_verb, owners_after(ctx, kind, old))
        return after

    def bootstrap(self, resource: str, namespace: str, name: str, obj: Json) -> None:
        """Put an object that the server itself owns (system namespaces, priority classes) past all admission."""
        ctx = self.context("create", resource, namespace, name)
        creating.fill_metadata(self, ctx, self.kind(resource), obj)
        self.write(ctx, self.kind(resource), namespace, name, obj, "create")
