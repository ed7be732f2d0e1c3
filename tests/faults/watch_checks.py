"""What etcd promises of a watch, as functions over recorded batches: an empty list means that the promise held.

The six names are those of etcd's API guarantees and of its robustness tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shared.ports import WatchBatch


def check_ordered(batches: Sequence[WatchBatch]) -> list[str]:
    """Events arrive in order of revision, and a batch is complete up to its revision."""
    found, last = [], 0
    for batch in batches:
        for event in batch.events:
            if event.kv.mod_revision < last:
                found.append(f"revision {event.kv.mod_revision} after {last}")
            last = max(last, event.kv.mod_revision)
        if batch.revision < last:
            found.append(f"batch at {batch.revision} holds {last}")
    return found


def check_unique(batches: Sequence[WatchBatch]) -> list[str]:
    """No event arrives twice."""
    seen: set[tuple[str, int]] = set()
    found = []
    for batch in batches:
        for event in batch.events:
            what = (event.kv.key, event.kv.mod_revision)
            if what in seen:
                found.append(f"{what} twice")
            seen.add(what)
    return found


def check_atomic(batches: Sequence[WatchBatch]) -> list[str]:
    """All events of one revision are in one batch."""
    home: dict[int, int] = {}
    found = []
    for index, batch in enumerate(batches):
        for event in batch.events:
            revision = event.kv.mod_revision
            if home.setdefault(revision, index) != index:
                found.append(f"revision {revision} in batches {home[revision]} and {index}")
    return found


def check_reliable(batches: Sequence[WatchBatch], written: Mapping[int, set[str]]) -> list[str]:
    """Nothing that was written (revision -> keys) is missing, nothing else arrives."""
    got: dict[int, set[str]] = {}
    for batch in batches:
        for event in batch.events:
            got.setdefault(event.kv.mod_revision, set()).add(event.kv.key)
    return [
        f"revision {revision}: wrote {sorted(written.get(revision, ()))}, saw {sorted(got.get(revision, ()))}"
        for revision in sorted(written.keys() | got.keys())
        if written.get(revision, set()) != got.get(revision, set())
    ]


def check_resumable(
    first: Sequence[WatchBatch], second: Sequence[WatchBatch], written: Mapping[int, set[str]]
) -> list[str]:
    """A watch begun after the last delivered revision continues the first without a gap and without a repetition."""
    whole = [*first, *second]
    return [*check_ordered(whole), *check_unique(whole), *check_atomic(whole), *check_reliable(whole, written)]


def check_bookmarkable(batches: Sequence[WatchBatch], written: Mapping[int, set[str]]) -> list[str]:
    """When a batch says it is complete up to R, everything written up to R has been delivered."""
    got: set[int] = set()
    found = []
    for batch in batches:
        got.update(event.kv.mod_revision for event in batch.events)
        missing = sorted(revision for revision in written if revision <= batch.revision and revision not in got)
        if missing:
            found.append(f"complete up to {batch.revision}, but {missing} missing")
    return found
