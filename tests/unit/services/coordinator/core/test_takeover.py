"""How a new leader begins: inherited intents are held until they are resolved, and only then forgotten."""

from __future__ import annotations

from services.coordinator.core.events import IntentGone, IntentRecord, IntentsListed, PodFetched
from services.coordinator.core.instructions import FetchPod, SendOffer, SendPlan
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene, check_places


def inheriting() -> Scene:
    """Two pods wait; one has an intent on n0, which takes one of them only."""
    scene = Scene()
    scene.add_node(make_node("n0").node())
    scene.add_pod(make_pod("promised").cpu("3").pod())
    scene.add_pod(make_pod("other").cpu("3").pod())
    scene.begin((IntentRecord("/intents/uid-promised", (("uid-promised", "n0"),)),))
    scene.run()
    return scene


def test_a_pod_with_an_intent_is_assumed_there_and_not_offered() -> None:
    scene = inheriting()
    assert scene.core.place_of("uid-promised") == ["intent"]
    assert scene.core.state.cache.accounts["uid-promised"].node_name == "n0"
    assert not scene.of(SendPlan), "the other pod does not fit beside it"
    assert not check_places(scene)
    assert scene.core.inherits_intents


def test_an_intent_that_the_watch_shows_bound_is_done() -> None:
    scene = inheriting()
    scene.change_pod("uid-promised", node_name="n0")
    scene.run()
    assert scene.core.state.cache.accounts["uid-promised"].assumed_at is None
    assert not scene.core.inherits_intents
    scene.deliver(IntentGone("/intents/uid-promised"))
    assert not scene.of(FetchPod)


def test_a_withdrawn_intent_gives_the_pod_back_to_the_queue() -> None:
    scene = inheriting()
    scene.inbox.append(IntentGone("/intents/uid-promised"))
    scene.run(until_s=20)
    assert len(scene.of(FetchPod)) == 1
    assert len(scene.bindings) == 1, "one of the two, by whoever came first"
    assert not scene.core.inherits_intents
    assert not check_places(scene)


def test_an_intent_that_goes_before_the_start_gives_its_pod_back_too() -> None:
    """The binder goes on while the new leader still lists: nobody may wait for the end of what has ended."""
    scene = Scene()
    scene.add_node(make_node("n0").node())
    scene.add_pod(make_pod("promised").cpu("3").pod())
    scene.deliver(IntentsListed((IntentRecord("/intents/uid-promised", (("uid-promised", "n0"),)),)))
    scene.deliver(IntentGone("/intents/uid-promised"))
    assert not scene.of(FetchPod)
    scene.begin()
    scene.run(until_s=20)
    assert len(scene.of(FetchPod)) == 1
    assert scene.bindings == [("uid-promised", "n0")]
    assert not check_places(scene)


def test_a_pod_that_is_held_for_an_intent_that_is_gone_is_seen_red() -> None:
    scene = inheriting()
    assert scene.core.validate() == []
    scene.core.takeover._intents.clear()
    assert any("uid-promised is held for an inherited intent that is gone" in one for one in scene.core.validate())


def test_intents_are_watched_until_it_is_known_that_there_are_none() -> None:
    """The watch may bring the next view before the core has taken in the first."""
    scene = Scene()
    scene.add_node(make_node("n0").node())
    assert scene.core.inherits_intents
    scene.begin()
    scene.run()
    assert not scene.core.inherits_intents


def test_a_pod_of_an_intent_that_was_deleted_frees_its_room() -> None:
    scene = inheriting()
    scene.delete_pod("uid-promised")
    scene.run(until_s=20)
    assert scene.bindings == [("uid-other", "n0")]


def test_an_intent_of_a_pod_that_is_gone_holds_nothing() -> None:
    scene = Scene()
    scene.add_node(make_node("n0").node())
    scene.begin((IntentRecord("/intents/x", (("uid-x", "n0"),)),))
    scene.run()
    assert not scene.core.state.cache.accounts
    assert not scene.core.inherits_intents


def test_an_unreadable_intent_holds_nobody_up() -> None:
    scene = Scene()
    scene.add_node(make_node("n0").node())
    scene.add_pod(make_pod("a").pod())
    scene.begin((IntentRecord("/intents/uid-a", ()),))
    scene.run()
    assert scene.bindings == [("uid-a", "n0")]


def test_the_oldest_pod_is_offered_first_after_a_takeover() -> None:
    scene = Scene(agents=1)
    scene.add_node(make_node("n0").node())
    for name, created in (("young", "2026-01-01T00:00:09Z"), ("old", "2026-01-01T00:00:01Z")):
        scene.add_pod(make_pod(name).cpu("3").set(creationTimestamp=created).pod())
    scene.begin()
    scene.run()
    assert scene.bindings == [("uid-old", "n0")]
    assert scene.of(SendOffer)


def test_pods_of_one_second_are_offered_as_they_were_told_after_a_takeover() -> None:
    """A mirror tells them as they came; names say nothing of that. News of one that waits does not send it back."""
    scene = Scene(agents=1)
    scene.add_node(make_node("n0").node())
    for name in ("m", "z", "a"):
        scene.add_pod(make_pod(name).cpu("3").set(creationTimestamp="2026-01-01T00:00:09Z").pod())
    scene.change_pod("uid-m", labels={"changed": "true"})
    scene.begin()
    scene.run()
    assert scene.bindings == [("uid-m", "n0")]


def test_a_lookup_that_fails_is_made_again() -> None:
    scene = inheriting()
    told = scene.deliver(IntentGone("/intents/uid-promised"))
    assert [i.uid for i in told if isinstance(i, FetchPod)] == ["uid-promised"]
    scene.inbox.clear()
    scene.inbox.append(PodFetched("uid-promised", None, failed=True))
    scene.run(until_s=1)
    assert scene.core.place_of("uid-promised") == ["intent"]
    scene.run(until_s=5)
    assert len(scene.of(FetchPod)) == 2
    assert scene.core.place_of("uid-promised") != ["intent"]
