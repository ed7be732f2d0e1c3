"""Events do not live for ever: a real server's ``--event-ttl`` is one hour. Without it a scheduler fills the memory."""

from __future__ import annotations

from twin.registry.registry import TwinRegistry

EVENT_TTL_S = 3600.0
_EVENTS = "events"


def expire_events(registry: TwinRegistry, ttl_s: float = EVENT_TTL_S) -> int:
    """Delete the events that were not written for ``ttl_s`` seconds; how many.

    The last write is taken from the book-keeping of managedFields. Times are compared as text, which RFC 3339 allows:
    with ten thousand young events this is to take a few milliseconds.
    """
    kind = registry.kind(_EVENTS)
    oldest = registry.now_text(registry.clock() - ttl_s)
    gone = 0
    for stored in registry.store.shelf(kind.storage).select():
        if stored.obj["metadata"]["creationTimestamp"] > oldest:
            continue
        if max((owner.time for owner in stored.owners), default="") <= oldest:
            ctx = registry.context("delete", kind, stored.namespace, stored.name, user="system:apiserver")
            registry.remove(ctx, kind, stored)
            gone += 1
    return gone
