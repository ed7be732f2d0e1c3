"""A list beside a watch, where names are given to one object after another: of each name the newest counts.

Who keeps objects by uid and who keeps them by name must end with what there is, whichever of list and watch is ahead.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from shared.kube.known import KnownObjects, ListingInProgress
from shared.kube.objects import KubePod
from shared.kube.resources import PODS, DeletedObject, ObjectList, Upserted, WatchEvent
from tests.unit.shared.kube.test_known_objects import pod

SINCE = 50
WALKS = 2_000


class Believers:
    """What was told, as those believe who keep by uid, and those who keep by name."""

    def __init__(self) -> None:
        self.by_uid: dict[str, str] = {}
        self.by_name: dict[str, str] = {}

    def read(self, events: list[WatchEvent[KubePod]]) -> None:
        for event in events:
            assert isinstance(event, Upserted | DeletedObject)
            meta = event.object.metadata
            if isinstance(event, DeletedObject):
                del self.by_uid[meta.uid]
                self.by_name.pop(meta.name, None)
            else:
                self.by_uid[meta.uid] = self.by_name[meta.name] = meta.resource_version
            assert sorted(self.by_uid.values()) == sorted(self.by_name.values()), "two bear one name, or one is lost"


@dataclass
class Made:
    """A listing beside a watch from ``SINCE`` on, of a consumer that has been told of these pods."""

    known: KnownObjects[KubePod]
    listing: ListingInProgress[KubePod]
    believers: Believers

    @classmethod
    def of(cls, *pods: KubePod) -> Made:
        known, believers = KnownObjects(PODS), Believers()
        believers.read(known.relist(ObjectList(pods, "10")))
        return cls(known, ListingInProgress(known, since=SINCE), believers)

    def watch(self, *events: WatchEvent[KubePod]) -> list[WatchEvent[KubePod]]:
        told = self.listing.apply(events)
        self.believers.read(told)
        return told

    def page(self, revision: int, *pods: KubePod) -> list[WatchEvent[KubePod]]:
        told = self.listing.page(ObjectList(pods, str(revision)))
        self.believers.read(told)
        return told

    def end(self, revision: int) -> None:
        self.believers.read(self.listing.end(str(revision)))


def test_a_page_of_before_does_not_take_a_name_from_the_one_that_the_watch_showed_bearing_it() -> None:
    made = Made.of(pod("web-0", 1, "A"))
    made.watch(DeletedObject(pod("web-0", 60, "A")), Upserted(pod("web-0", 61, "C")))
    assert made.page(55, pod("web-0", 1, "A")) == []
    made.end(55)
    assert made.believers.by_uid == {"C": "61"}


def test_the_end_of_one_whose_successor_the_list_told_is_not_told_again() -> None:
    made = Made.of(pod("n1", 1, "A"))
    page = made.page(70, pod("n1", 61, "C"))
    assert [type(event) for event in page] == [DeletedObject, Upserted]
    assert made.watch(DeletedObject(pod("n1", 60, "A")), Upserted(pod("n1", 61, "C"))) == []
    assert made.believers.by_name == {"n1": "61"}


def test_one_that_came_and_went_before_the_list_does_not_take_the_name_from_its_successor() -> None:
    made = Made.of(pod("n1", 1, "A"))
    made.page(70, pod("n1", 63, "C"))
    lagging = DeletedObject(pod("n1", 60, "A")), Upserted(pod("n1", 61, "B")), DeletedObject(pod("n1", 62, "B"))
    assert made.watch(Upserted(pod("n1", 59, "A")), *lagging, Upserted(pod("n1", 63, "C"))) == []
    made.end(70)
    assert made.believers.by_uid == {"C": "63"}


def test_a_page_of_later_gives_a_name_on_from_the_one_that_the_watch_showed() -> None:
    made = Made.of(pod("n1", 1, "A"))
    made.watch(DeletedObject(pod("n1", 60, "A")), Upserted(pod("n1", 61, "B")))
    made.page(70, pod("n1", 66, "C"))
    assert made.watch(DeletedObject(pod("n1", 65, "B")), Upserted(pod("n1", 66, "C"))) == []
    made.end(70)
    assert made.believers.by_uid == {"C": "66"}


class History:
    """Every change there was, by revision, and what there is at each."""

    def __init__(self, rng: random.Random, names: str, first: int, last: int) -> None:
        self.rng, self.made = rng, 0
        self.states: dict[int, dict[str, KubePod]] = {first: {}}
        self.events: dict[int, WatchEvent[KubePod]] = {}
        for revision in range(first + 1, last + 1):
            state = dict(self.states[revision - 1])
            name = rng.choice(names)
            there = state.get(name)
            if there is None:
                self.made += 1
                state[name] = pod(name, revision, f"{name}-{self.made}")
                self.events[revision] = Upserted(state[name])
            elif rng.random() < 0.6:
                del state[name]
                self.events[revision] = DeletedObject(pod(name, revision, there.metadata.uid))
            else:
                state[name] = pod(name, revision, there.metadata.uid)
                self.events[revision] = Upserted(state[name])
            self.states[revision] = state


def walk(seed: int) -> None:
    """One list beside a watch, after a gap, in one of all orders; then the watch goes on and all must be as it is."""
    rng = random.Random(seed)
    history = History(rng, "ab" if seed % 2 else "abcd", 20, 80)
    gap = rng.randint(30, SINCE)  # what was told last
    known, believers = KnownObjects(PODS), Believers()
    believers.read(known.relist(ObjectList(tuple(history.states[gap].values()), str(gap))))
    listing = ListingInProgress(known, since=SINCE)
    listed_at = rng.randint(SINCE, 80)
    rest = list(history.states[listed_at].values())
    rng.shuffle(rest)
    watched, watched_share = SINCE, rng.random()
    while rest:
        if rng.random() < watched_share and watched < 80:
            watched += 1
            believers.read(listing.apply([history.events[watched]]))
        else:
            size = rng.randint(1, 2)
            believers.read(listing.page(ObjectList(tuple(rest[:size]), str(listed_at))))
            rest = rest[size:]
    while rng.random() < watched_share and watched < 80:
        watched += 1
        believers.read(listing.apply([history.events[watched]]))
    believers.read(listing.end(str(listed_at)))
    begin = max(watched, listed_at)
    expect(believers, history.states[begin])
    for revision in range(begin + 1, 81):
        believers.read(known.apply([history.events[revision]]))
    expect(believers, history.states[80])


def expect(believers: Believers, state: dict[str, KubePod]) -> None:
    assert believers.by_uid == {found.metadata.uid: found.metadata.resource_version for found in state.values()}
    assert believers.by_name == {name: found.metadata.resource_version for name, found in state.items()}


def walks() -> None:
    for seed in range(WALKS):
        try:
            walk(seed)
        except (AssertionError, KeyError) as error:
            raise AssertionError(f"seed {seed}") from error


def test_whichever_is_ahead_each_name_ends_with_the_one_that_bears_it() -> None:
    walks()


def test_the_walk_notices_a_name_that_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The safeguard switched off: that another one bears the name since counts for nothing."""
    real = ListingInProgress._is_behind
    monkeypatch.setattr(
        ListingInProgress,
        "_is_behind",
        lambda self, uid, revision: uid not in self._named.values() and real(self, uid, revision),
    )
    with pytest.raises(AssertionError, match="seed"):
        walks()
