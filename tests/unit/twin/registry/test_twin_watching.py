"""Watchers: what a change means for a selection, order, bounds, bookmarks."""

from __future__ import annotations

import json
from random import Random

import pytest

from twin.registry import watching
from twin.registry.list_options import parse_fields, parse_labels
from twin.registry.store import ObjectStore, Shelf
from twin.registry.watching import Selection, Watcher, bookmark_due

HEAD = b'{"kind":"Pod","apiVersion":"v1",'


def watcher(selection: Selection, *, after: int = 0) -> Watcher:
    return Watcher(selection, lambda change, type_: change.frame(HEAD, type_), lambda: None, after=after)


def events(one: Watcher) -> list[tuple[str, str, int]]:
    lines = [json.loads(line) for line in one.take().splitlines()]
    return [
        (e["type"], e["object"]["metadata"]["name"], int(e["object"]["metadata"]["resourceVersion"])) for e in lines
    ]


class Pods:
    def __init__(self) -> None:
        self.store = ObjectStore(first_revision=0)
        self.shelf: Shelf = self.store.shelf("pods")

    def put(self, name: str, node: str = "", **labels: str) -> int:
        obj = {"metadata": {"name": name, "labels": labels}, "spec": {"nodeName": node}}
        change = self.store.write("pods", "ns", name, obj)
        self.shelf.announce(change)
        return change.revision

    def remove(self, name: str) -> int:
        old = self.shelf.get(f"ns/{name}")
        assert old is not None
        change = self.store.delete("pods", old)
        self.shelf.announce(change)
        return change.revision

    def watch(self, **selection: object) -> Watcher:
        one = watcher(Selection(**selection))  # type: ignore[arg-type]
        self.shelf.receivers.append(one)
        return one


def node_of(obj: dict[str, object]) -> dict[str, str]:
    return {"spec.nodeName": obj["spec"]["nodeName"]}  # type: ignore[index]


def test_object_that_enters_the_selection_is_added_and_one_that_leaves_deleted() -> None:
    pods = Pods()
    seen = pods.watch(labels=parse_labels("app=x"))
    for labels in ({"app": "y"}, {"app": "x"}, {"app": "x", "n": "1"}, {"app": "z"}, {}):
        pods.put("a", **labels)
    assert events(seen) == [("ADDED", "a", 2), ("MODIFIED", "a", 3), ("DELETED", "a", 4)]


def test_left_selection_shows_the_old_state_with_the_new_revision() -> None:
    pods = Pods()
    fields = parse_fields("spec.nodeName=", frozenset(("spec.nodeName",)))
    unassigned = pods.watch(fields=fields, selectable=node_of)
    pods.put("a")
    pods.put("a", node="n1")
    lines = [json.loads(line) for line in unassigned.take().splitlines()]
    assert [line["type"] for line in lines] == ["ADDED", "DELETED"]
    assert lines[1]["object"]["spec"]["nodeName"] == ""
    assert lines[1]["object"]["metadata"]["resourceVersion"] == "2"


def test_deleted_object_outside_the_selection_is_not_mentioned() -> None:
    pods = Pods()
    seen = pods.watch(labels=parse_labels("app=x"))
    pods.put("a", app="y")
    pods.remove("a")
    assert events(seen) == []


def test_other_namespaces_are_not_seen() -> None:
    pods = Pods()
    seen = pods.watch(namespace="other")
    pods.put("a")
    assert events(seen) == []


def test_watch_from_the_future_waits_in_silence() -> None:
    pods = Pods()
    seen = watcher(Selection(), after=2)
    pods.shelf.receivers.append(seen)
    for _ in range(3):
        pods.put("a")
    assert events(seen) == [("MODIFIED", "a", 3)]


def test_event_bytes_are_made_once_and_shared() -> None:
    pods = Pods()
    change = pods.store.write("pods", "ns", "a", {"metadata": {"name": "a"}})
    assert change.frame(HEAD, "ADDED") is change.frame(HEAD, "ADDED")


def random_history(pods: Pods, rng: Random, steps: int) -> None:
    for _ in range(steps):
        name = f"p{rng.randrange(8)}"
        if pods.shelf.get(f"ns/{name}") is not None and rng.random() < 0.3:
            pods.remove(name)
        else:
            pods.put(name, app=rng.choice("xyz"))


@pytest.mark.parametrize("seed", range(20))
def test_following_a_selection_ends_in_the_list_of_it(seed: int) -> None:
    """I7 and I8 for one watcher: applying its events gives what a list gives, in growing revisions."""
    pods, rng = Pods(), Random(seed)
    random_history(pods, rng, 20)
    selection = Selection(labels=parse_labels("app in (x,y)"))
    view = {one.name for one in selection.pick(pods.shelf)}
    seen = watcher(selection)
    pods.shelf.receivers.append(seen)
    random_history(pods, rng, 100)
    revisions = []
    for type_, name, revision in events(seen):
        assert (name in view) is (type_ != "ADDED")
        (view.discard if type_ == "DELETED" else view.add)(name)
        revisions.append(revision)
    assert view == {one.name for one in selection.pick(pods.shelf)}
    assert revisions == sorted(set(revisions))


def test_without_transitions_the_followed_view_goes_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation: watchers that hand out a change's own type break the rule the test above checks."""
    monkeypatch.setattr(Watcher, "_seen_as", lambda _self, change: change.type)

    def wrong(seed: int) -> bool:
        try:
            test_following_a_selection_ends_in_the_list_of_it(seed)
        except AssertionError:
            return True
        return False

    assert any(wrong(seed) for seed in range(20))


def test_watcher_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MAX_WAITING_BYTES", 500)
    pods = Pods()
    slow = pods.watch()
    for _ in range(20):
        pods.put("a", pad="x" * 40)
    assert slow.overflowed
    assert slow.take() == b""


@pytest.mark.parametrize(
    ("deadline", "due"),
    [
        pytest.param(None, 160.0, id="no deadline: about a minute"),
        pytest.param(103.0, 101.0, id="two seconds before the end"),
        pytest.param(101.0, None, id="too short for one"),
        pytest.param(1000.0, 160.0, id="a minute comes first"),
    ],
)
def test_bookmarks_come_each_minute_and_before_the_end(deadline: float | None, due: float | None) -> None:
    assert bookmark_due(100.0, deadline) == due
