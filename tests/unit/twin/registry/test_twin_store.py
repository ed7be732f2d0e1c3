"""The store: one revision counter, ordered history, exact snapshots, compaction."""

from __future__ import annotations

from random import Random

import pytest

from twin.registry.store import Compacted, ObjectStore


def obj(name: str, value: int) -> dict[str, object]:
    return {"metadata": {"name": name, "labels": {"v": str(value)}}}


def put(store: ObjectStore, name: str, value: int = 0, resource: str = "pods") -> int:
    change = store.write(resource, "ns", name, obj(name, value))  # type: ignore[arg-type]
    store.shelf(resource).announce(change)
    return change.revision


def remove(store: ObjectStore, name: str) -> int:
    shelf = store.shelf("pods")
    old = shelf.get(f"ns/{name}")
    assert old is not None
    change = store.delete("pods", old)
    shelf.announce(change)
    return change.revision


def test_one_counter_numbers_the_writes_of_all_resources() -> None:
    store = ObjectStore(first_revision=1000)
    assert [put(store, "a"), put(store, "n", resource="nodes"), put(store, "a", 1)] == [1001, 1002, 1003]


def test_namespace_selection_does_not_take_its_longer_neighbours() -> None:
    store = ObjectStore()
    for namespace in ("a", "a-b", "ab", "a.c"):
        store.write("pods", namespace, "x", obj("x", 0))  # type: ignore[arg-type]
    assert [one.namespace for one in store.shelf("pods").select("a")] == ["a"]
    assert [one.namespace for one in store.shelf("pods").select()] == ["a-b", "a.c", "a", "ab"]


def test_snapshot_shows_exactly_what_was_there() -> None:
    """Against a model: every revision of a random history is reconstructed as it was."""
    rng = Random(3)
    store = ObjectStore()
    model: dict[str, int] = {}
    seen: dict[int, dict[str, int]] = {}
    for step in range(300):
        name = f"p{rng.randrange(12)}"
        if name in model and rng.random() < 0.4:
            del model[name]
            revision = remove(store, name)
        else:
            model[name] = step
            revision = put(store, name, step)
        seen[revision] = dict(model)
    for revision, expected in seen.items():
        snapshot = store.shelf("pods").at(revision)
        assert {one.name: int(one.labels["v"]) for one in snapshot} == expected
        assert [one.key for one in snapshot] == sorted(one.key for one in snapshot)


def test_history_before_the_window_is_compacted() -> None:
    store = ObjectStore(window=10)
    revisions = [put(store, "a", step) for step in range(30)]
    shelf = store.shelf("pods")
    with pytest.raises(Compacted):
        shelf.since(revisions[0])
    with pytest.raises(Compacted):
        shelf.at(revisions[0])
    assert [change.revision for change in shelf.since(revisions[-3])] == revisions[-2:]
    assert shelf.since(revisions[-1]) == []


def test_everything_before_the_first_revision_counts_as_compacted() -> None:
    store = ObjectStore(first_revision=1000)
    with pytest.raises(Compacted):
        store.shelf("pods").since(999)
    assert store.shelf("pods").since(1000) == []


def test_compaction_forgets_up_to_its_revision_and_no_further() -> None:
    store = ObjectStore()
    first, second, third = (put(store, "a", step) for step in range(3))
    store.compact(second)
    with pytest.raises(Compacted):
        store.shelf("pods").since(first)
    assert [change.revision for change in store.shelf("pods").since(second)] == [third]


def test_superseded_revision_keeps_its_bytes_only() -> None:
    store = ObjectStore()
    put(store, "a", 1)
    old = store.shelf("pods").get("ns/a")
    assert old is not None
    put(store, "a", 2)
    assert old.obj["metadata"]["labels"] == {"v": "1"}
    assert old.obj is not old.obj  # decoded anew: nothing is held


def test_waiter_is_called_once_when_the_revision_is_reached() -> None:
    store = ObjectStore(first_revision=1000)
    called: list[int] = []
    store.when_revision(1002, lambda: called.append(store.revision))
    put(store, "a")
    assert called == []
    put(store, "b")
    put(store, "c")
    assert called == [1002]
