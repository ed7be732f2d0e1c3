"""A fresh list becomes exactly the events that lead to it (invariants K1 to K3 of ``shared.kube.known``)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shared.kube.known import KnownObjects
from shared.kube.objects import KubePod, ObjectMeta
from shared.kube.resources import (
    PODS,
    Bookmark,
    DeletedObject,
    Malformed,
    MalformedObject,
    ObjectList,
    Upserted,
    WatchEvent,
)


def pod(name: str, version: int, uid: str = "") -> KubePod:
    return KubePod(
        metadata=ObjectMeta(name=name, namespace="d", uid=uid or f"uid-{name}", resource_version=str(version))
    )


def bad(name: str, version: int) -> MalformedObject:
    return MalformedObject("Pod", "d", name, f"uid-{name}", str(version), "wrong")


def listed(*pods: KubePod, malformed: tuple[MalformedObject, ...] = ()) -> ObjectList[KubePod]:
    return ObjectList(pods, "99", malformed)


class Consumer:
    """What someone who only reads events believes: uid to resourceVersion."""

    def __init__(self) -> None:
        self.state: dict[str, str] = {}

    def read(self, events: list[WatchEvent[KubePod]]) -> None:
        for event in events:
            assert not isinstance(event, Bookmark)
            found: Any = event.object if isinstance(event, Malformed) else event.object.metadata
            if isinstance(event, DeletedObject) or (isinstance(event, Malformed) and event.deleted):
                self.state.pop(found.uid, None)
            else:
                self.state[found.uid] = found.resource_version


def test_the_first_list_tells_everything():
    known = KnownObjects(PODS)
    a, b = pod("a", 1), pod("b", 2)
    assert known.relist(listed(a, b)) == [Upserted(a), Upserted(b)]


def test_a_second_list_tells_only_what_changed_and_what_is_gone_at_its_end():
    known = KnownObjects(PODS)
    known.relist(listed(pod("a", 1), pod("b", 2), pod("c", 3)))
    changed, new = pod("b", 7), pod("d", 8)
    *rest, gone = known.relist(listed(pod("a", 1), changed), listed(new))
    assert isinstance(gone, DeletedObject)
    assert gone.object.metadata == ObjectMeta(name="c", namespace="d", uid="uid-c", resource_version="3")
    assert rest == [Upserted(changed), Upserted(new)]


def test_a_pod_recreated_under_its_name_is_a_deletion_and_an_addition():
    known = KnownObjects(PODS)
    known.relist(listed(pod("a", 1, "old")))
    again = pod("a", 9, "new")
    first, second = known.relist(listed(again))
    assert isinstance(first, DeletedObject)
    assert first.object.metadata.uid == "old"
    assert second == Upserted(again)


def test_bookmarks_and_what_is_known_already_are_not_told():
    known = KnownObjects(PODS)
    event = Upserted(pod("a", 1))
    assert known.apply([event, Bookmark("5"), event]) == [event]


def test_a_malformed_object_is_told_once_and_its_deletion_too():
    known = KnownObjects(PODS)
    assert known.relist(listed(malformed=(bad("x", 1),))) == [Malformed(bad("x", 1))]
    assert known.relist(listed(malformed=(bad("x", 1),))) == []
    (gone,) = known.relist(listed())
    assert isinstance(gone, Malformed)
    assert (gone.deleted, gone.object.uid) == (True, "uid-x")


def test_a_malformed_object_that_was_mended_is_told_though_its_uid_is_known():
    known = KnownObjects(PODS)
    known.apply([Malformed(bad("x", 1))])
    mended = Upserted(pod("x", 2))
    assert known.apply([mended]) == [mended]


states = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 9), max_size=6)


@given(steps=st.lists(st.tuples(st.booleans(), states), max_size=8))
def test_any_mix_of_lists_and_events_leaves_the_consumer_with_the_last_state(steps):
    known, consumer = KnownObjects(PODS), Consumer()
    truth: dict[str, int] = {}
    for by_list, state in steps:
        if by_list:
            consumer.read(known.relist(listed(*(pod(name, version) for name, version in state.items()))))
        else:
            events: list[WatchEvent[KubePod]] = [DeletedObject(pod(name, 99)) for name in truth.keys() - state.keys()]
            events += [Upserted(pod(name, version)) for name, version in state.items() if truth.get(name) != version]
            consumer.read(known.apply(events))
        truth = state
        assert consumer.state == {f"uid-{name}": str(version) for name, version in truth.items()}
        assert len(known) == len(truth)


def labelled(version: int, label: str | None) -> KubePod:
    labels = {"is": label} if label is not None else None
    return KubePod(
        metadata=ObjectMeta(name="a", namespace="d", uid="uid-a", resource_version=str(version), labels=labels)
    )


def label_of(found: KubePod) -> int | None:
    return hash(found.metadata.labels["is"]) if found.metadata.labels is not None else None


def test_a_change_that_leaves_the_content_as_it_was_is_noted_and_not_told() -> None:
    known = KnownObjects(PODS, label_of)
    first, same, other = labelled(1, "x"), labelled(2, "x"), labelled(3, "y")
    assert known.apply([Upserted(first), Upserted(same), Upserted(other)]) == [Upserted(first), Upserted(other)]
    assert known.relist(listed(labelled(4, "y"))) == []
    assert known.apply([Upserted(labelled(4, "x"))]) == []  # the revision is known from the list: delivered again


def test_without_a_content_every_change_is_told() -> None:
    """Ablation of the test above, and what a pod on no node gets."""
    first, same = labelled(1, "x"), labelled(2, "x")
    assert KnownObjects(PODS).apply([Upserted(first), Upserted(same)]) == [Upserted(first), Upserted(same)]
    bare = [Upserted(labelled(1, None)), Upserted(labelled(2, None))]
    assert KnownObjects(PODS, label_of).apply(bare) == bare


def test_content_is_told_again_after_doubt_and_after_the_object_was_unreadable_or_gone() -> None:
    known = KnownObjects(PODS, label_of)
    told = [
        Upserted(labelled(1, "x")),
        Malformed(bad("a", 2)),
        Upserted(labelled(3, "x")),
        DeletedObject(labelled(4, "x")),
    ]
    assert known.apply(told) == told
    again = [Upserted(labelled(5, "x"))]
    assert known.apply(again) == again
    known.doubt()
    assert known.relist(listed(labelled(5, "x"))) == again
