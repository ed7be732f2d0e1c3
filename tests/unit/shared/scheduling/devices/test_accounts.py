"""Claims that are assumed, shown, shared and forgotten: no device twice, nothing held for nobody."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from msgspec.structs import replace

from shared.model.devices import NANO, AllocatedDevice, Allocation, DeviceClaim, DevicePod
from shared.scheduling.devices import accounts
from shared.scheduling.devices.accounts import ClaimAccounts
from shared.scheduling.devices.dynamic_resources import Devices, PodDevices
from tests.unit.shared.scheduling.devices.builders import DRIVER, NODE, ask, claim, cluster, device, local, pod

GIVEN = Allocation((AllocatedDevice("r", DRIVER, "n0", "d0"),))
OTHER = Allocation((AllocatedDevice("r", DRIVER, "n0", "d1"),))
WANTED = claim(ask())
SECOND = replace(WANTED, name="second", uid="second")


def kept(*claims: DeviceClaim) -> ClaimAccounts:
    found = ClaimAccounts(cluster(local(device("d0"), device("d1"))).inventory)
    for one in claims:
        found.observe(one)
    return found


def test_what_is_assumed_is_in_use_and_what_is_forgotten_is_free() -> None:
    mine = kept(WANTED)
    assert mine.assume("a", WANTED.key, GIVEN, 1.0) == ""
    assert mine.inventory.claims[WANTED.key] == replace(WANTED, allocation=GIVEN, reserved_for=("a",))
    assert mine.inventory.usage.used((DRIVER, "n0", "d0"))
    assert mine.overdue(11.0, 10.0) == []
    assert mine.overdue(11.1, 10.0) == [("a", WANTED.key)]
    assert mine.forget("a") == {WANTED.key}
    assert mine.inventory.claims[WANTED.key] == WANTED
    assert not mine.inventory.usage.used((DRIVER, "n0", "d0"))
    assert list(mine.validate()) == []


def test_a_claim_is_confirmed_by_the_watch_and_an_older_version_undoes_nothing() -> None:
    mine = kept(WANTED)
    mine.assume("a", WANTED.key, GIVEN, 1.0)
    assert mine.observe(replace(WANTED, resource_version="2")) == frozenset()
    assert mine.inventory.claims[WANTED.key].allocation == GIVEN
    written = replace(WANTED, allocation=replace(GIVEN, at=5.0), reserved_for=("a",))
    assert mine.observe(written) == frozenset()
    assert mine.inventory.claims[WANTED.key] == written
    assert (mine.assumed, mine.overdue(1e9, 0.0)) == ({}, [])
    assert mine.forget("a") == frozenset()
    assert mine.inventory.usage.used((DRIVER, "n0", "d0"))


@pytest.mark.parametrize(
    "shown",
    [replace(WANTED, allocation=OTHER), replace(WANTED, uid="made anew")],
    ids=["allocated elsewhere", "made anew"],
)
def test_who_assumed_what_another_got_has_lost_it(shown: DeviceClaim) -> None:
    mine = kept(WANTED)
    mine.assume("a", WANTED.key, GIVEN, 1.0)
    assert mine.observe(shown) == {"a"}
    assert mine.inventory.claims[WANTED.key] == shown
    assert not mine.inventory.usage.used((DRIVER, "n0", "d0"))
    assert list(mine.validate()) == []


def test_who_waits_for_a_claim_that_goes_or_is_taken_back_has_lost_it() -> None:
    mine = kept(replace(WANTED, allocation=GIVEN))
    assert mine.assume("a", WANTED.key, None, 1.0) == ""
    assert mine.observe(WANTED) == {"a"}
    mine.assume("b", WANTED.key, GIVEN, 1.0)
    assert mine.gone(WANTED.key) == {"b"}
    assert (mine.assumed, mine.inventory.claims) == ({}, {})


def test_what_may_have_been_written_is_held_until_it_is_known() -> None:
    """The pod is given up while the answer to the write is not there: freed now, its device would be another's when the
    watch shows that the write had happened."""
    mine = kept(WANTED, SECOND)
    mine.assume("a", WANTED.key, GIVEN, 1.0)
    mine.send(WANTED.key, 2.0)
    assert mine.forget("a") == frozenset()
    assert (
        mine.assume("b", SECOND.key, GIVEN, 3.0)
        == f"claim {SECOND.key}: device {DRIVER}/n0/d0 was given to another claim"
    )
    assert mine.overdue(13.0, 10.0) == [("", WANTED.key)]
    mine.settle(WANTED.key)
    assert mine.assume("b", SECOND.key, GIVEN, 3.0) == ""
    mine.forget("b")
    mine.assume("a", WANTED.key, GIVEN, 1.0)
    mine.send(WANTED.key, 2.0)
    mine.forget("a")
    written = replace(WANTED, allocation=GIVEN, reserved_for=("a",))
    assert mine.observe(written) == frozenset()
    assert mine.observe(replace(WANTED, resource_version="9")) == frozenset()
    assert mine.inventory.usage.used((DRIVER, "n0", "d0"))  # it may be written once more
    assert mine.written(replace(written, resource_version="10")) == frozenset()
    assert (mine.assumed, mine.inventory.claims[WANTED.key].allocation) == ({}, GIVEN)
    assert mine.observe(replace(WANTED, resource_version="9")) == frozenset()
    assert mine.inventory.usage.used((DRIVER, "n0", "d0"))


def test_a_write_that_was_refused_leaves_the_claim_assumed() -> None:
    mine = kept(WANTED)
    mine.assume("a", WANTED.key, GIVEN, 1.0)
    mine.send(WANTED.key, 2.0)
    mine.settle(WANTED.key)
    assert mine.inventory.claims[WANTED.key].allocation == GIVEN
    assert mine.forget("a") == {WANTED.key}


def test_a_shared_claim_is_held_until_its_last_consumer_goes() -> None:
    mine = kept(WANTED)
    assert [mine.assume(uid, WANTED.key, GIVEN, 1.0) for uid in "ab"] == ["", ""]
    assert mine.assume("c", WANTED.key, None, 1.0) == ""
    assert mine.forget("a") == frozenset()
    assert mine.forget("c") == frozenset()
    assert mine.inventory.claims[WANTED.key].reserved_for == ("b",)
    assert mine.forget("b") == {WANTED.key}


def test_the_257th_consumer_is_refused() -> None:
    mine = kept(replace(WANTED, allocation=GIVEN, reserved_for=tuple(map(str, range(200)))))
    assert {mine.assume(f"more-{i}", WANTED.key, None, 1.0) for i in range(56)} == {""}
    assert mine.assume("one more", WANTED.key, None, 1.0) == "claim default/c is reserved for 256 consumers already"
    assert mine.assume("more-3", WANTED.key, None, 1.0) == ""
    assert list(mine.validate()) == []


def test_pods_that_use_a_claim_through_their_group_are_one_consumer_and_each_holds_it() -> None:
    mine = kept(WANTED)
    names = [f"member-{number}" for number in range(300)]
    assert {mine.assume(name, WANTED.key, GIVEN, 1.0, group_uid="group") for name in names} == {""}
    assert mine.assume("alone", WANTED.key, None, 1.0) == ""
    assert mine.inventory.claims[WANTED.key].reserved_for == ("group", "alone")
    assert list(mine.validate()) == []
    assert [mine.forget(name) for name in names[1:]] == [frozenset()] * 299
    assert mine.inventory.claims[WANTED.key].reserved_for == ("group", "alone")
    assert mine.forget("alone") == frozenset()
    assert mine.forget("member-0") == {WANTED.key}
    assert list(mine.validate()) == []


def test_what_is_shown_as_reserved_for_a_group_is_confirmed_for_all_of_its_pods() -> None:
    mine = kept(WANTED)
    for name in "ab":
        mine.assume(name, WANTED.key, GIVEN, 1.0, group_uid="group")
    mine.assume("c", WANTED.key, None, 1.0)
    assert mine.observe(replace(WANTED, allocation=GIVEN, reserved_for=("group",))) == frozenset()
    assert (mine.holds("a"), mine.holds("b"), mine.holds("c")) == (False, False, True)
    assert mine.inventory.claims[WANTED.key].reserved_for == ("group", "c")
    assert mine.assume("d", WANTED.key, None, 1.0, group_uid="group") == ""
    assert not mine.holds("d")
    assert list(mine.validate()) == []


@pytest.mark.parametrize(
    ("key", "allocation", "why"),
    [
        ("default/none", GIVEN, "claim default/none is gone"),
        ("default/going", GIVEN, "claim default/going is being deleted"),
        ("default/c", None, "claim default/c is not allocated"),
        ("default/has", GIVEN, "claim default/has got allocated elsewhere in the meantime"),
        ("default/c", OTHER, f"claim default/c: device {DRIVER}/n0/d1 was given to another claim"),
    ],
)
def test_an_assumption_that_cannot_hold_says_why_and_changes_nothing(
    key: str, allocation: Allocation | None, why: str
) -> None:
    going = replace(WANTED, name="going", uid="going", deleting=True)
    mine = kept(WANTED, going, replace(WANTED, name="has", uid="has", allocation=OTHER))
    before = dict(mine.inventory.claims)
    assert mine.assume("a", key, allocation, 1.0) == why
    assert (mine.inventory.claims, mine.assumed) == (before, {})


def test_what_is_shared_is_not_given_beyond_what_there_is() -> None:
    parts = [
        local(device("d0", shareable=True, capacity={"memory": 3}), count=2),
        local(name="c", count=2, counter_sets=(("set", (("c", 2 * NANO),)),)),
    ]
    mine = ClaimAccounts(cluster(*parts).inventory)
    for number in range(3):
        mine.observe(replace(WANTED, name=f"c{number}", uid=f"c{number}"))
    share = [
        Allocation((AllocatedDevice("r", DRIVER, "n0", "d0", share=f"s{i}", consumed=(("memory", 2 * NANO),)),))
        for i in "ab"
    ]
    assert mine.assume("a", "default/c0", share[0], 1.0) == ""
    assert mine.assume("b", "default/c1", share[1], 1.0) == (
        f"claim default/c1: device {DRIVER}/n0/d0 has not enough left to share"
    )
    assert mine.assume("b", "default/c1", GIVEN, 1.0).endswith("was given to another claim")


def test_partitions_that_exclude_each_other_are_not_both_given() -> None:
    takes = (("set", (("c", 2 * NANO),)),)
    parts = [
        local(device("d0", consumes=takes), device("d1", consumes=takes), count=2),
        local(name="c", count=2, counter_sets=(("set", (("c", 3 * NANO),)),)),
    ]
    mine = ClaimAccounts(cluster(*parts).inventory)
    mine.observe(WANTED)
    mine.observe(SECOND)
    assert mine.assume("a", WANTED.key, GIVEN, 1.0) == ""
    assert (
        mine.assume("b", SECOND.key, OTHER, 1.0) == f"claim {SECOND.key}: pool {DRIVER}/n0 has not enough counters left"
    )


class Walk:
    """A cluster of a few devices, an API server that shows claims late, and pods that come and go."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        shared = device("s0", shareable=True, capacity={"memory": 4}, attributes={"kind": "shared"})
        self.devices: Devices = cluster(local(*(device(f"d{i}") for i in range(4)), shared))
        self.mine = ClaimAccounts(self.devices.inventory)
        self.server: dict[str, DeviceClaim] = {}
        self.late: list[DeviceClaim] = []
        self.answers: list[DeviceClaim | str] = []
        self.wants: dict[str, DevicePod] = {}
        self.number = self.version = 0

    def step(self) -> None:
        getattr(
            self,
            self.rng.choice(
                ("arrive", "arrive", "place", "place", "write", "answer", "show", "show", "leave", "steal")
            ),
        )()
        problems = list(self.mine.validate())
        assert not problems, problems
        mine = [given for ours in self.mine.assumed.values() if ours.allocation for given in ours.allocation.results]
        twice = [given.id for given in mine if self.devices.inventory.usage.exclusive[given.id] > 1]
        assert not twice, f"claims-twice: {twice}"

    def arrive(self) -> None:
        self.number += 1
        name = f"c{self.number}"
        selector = 'device.attributes[device.driver].?kind.orValue("") == "shared"'
        asked = ask(selectors=(selector,), capacity=(("memory", NANO),)) if self.rng.random() < 0.4 else ask()
        self.put(claim(asked, name=name))
        for user in range(self.rng.choice((1, 1, 2))):
            self.wants[f"{name}-{user}"] = replace(
                pod(claim(asked, name=name)), name=f"{name}-{user}", uid=f"{name}-{user}"
            )

    def put(self, changed: DeviceClaim) -> DeviceClaim:
        self.version += 1
        changed = replace(changed, resource_version=str(self.version))
        self.server[changed.key] = changed
        self.late.append(changed)
        held = Counter(
            one.results[0].device for c in self.server.values() if (one := c.allocation) and not one.results[0].share
        )
        assert all(count == 1 for name, count in held.items() if name.startswith("d")), "twice on the server"
        return changed

    def place(self) -> None:
        if not self.wants:
            return
        wanting = self.wants[self.rng.choice(sorted(self.wants))]
        prepared = self.devices.prepare(wanting, 0.0)
        if not isinstance(prepared, PodDevices) or prepared.rejection(NODE) is not None:
            return
        shares = prepared.allocations(NODE, lambda: str(self.rng.random()))
        given = {one.key: allocation for one, allocation in shares}
        for one in prepared.claims:
            assert self.mine.assume(wanting.uid, one.key, given.get(one.key), 0.0) == ""

    def write(self) -> None:
        """The binder writes what is assumed, to the version that it has seen; the answer comes later."""
        waiting = [key for key, ours in self.mine.assumed.items() if ours.consumers and ours.sent is None]
        if not waiting:
            return
        key = self.rng.choice(sorted(waiting))
        ours, now = self.mine.assumed[key], self.server[key]
        self.mine.send(key, 0.0)
        if now.resource_version != self.mine.shown[key].resource_version:
            self.answers.append(key)  # a conflict
            return
        reserved = dict.fromkeys((*now.reserved_for, *ours.consumers))
        written = replace(now, allocation=now.allocation or ours.allocation, reserved_for=tuple(reserved))
        self.answers.append(self.put(written))

    def answer(self) -> None:
        if self.answers:
            found = self.answers.pop(0)
            if isinstance(found, str):
                self.mine.settle(found)
            else:
                self.check_lost(found, self.mine.written(found))

    def show(self) -> None:
        if self.late:
            shown = self.late.pop(0)
            self.check_lost(shown, self.mine.observe(shown))

    def check_lost(self, shown: DeviceClaim, lost: frozenset[str]) -> None:
        ours = self.mine.assumed.get(shown.key)
        assert ours is None or lost.isdisjoint(ours.consumers)

    def leave(self) -> None:
        if self.wants:
            uid = self.rng.choice(sorted(self.wants))
            del self.wants[uid]
            self.mine.forget(uid)
            for one in list(self.server.values()):
                if uid in one.reserved_for:
                    rest = tuple(other for other in one.reserved_for if other != uid)
                    self.put(replace(one, reserved_for=rest, allocation=one.allocation if rest else None))

    def steal(self) -> None:
        """Another scheduler allocates a claim that we may have assumed."""
        free = [one for one in self.server.values() if one.allocation is None]
        if free and self.rng.random() < 0.3:
            taken = Allocation((AllocatedDevice("r", DRIVER, "n0", f"foreign-{self.number}"),))
            self.put(replace(self.rng.choice(free), allocation=taken, reserved_for=("foreign",)))


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_no_device_is_given_twice_and_nothing_is_held_for_nobody(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(150):
        walk.step()
    for uid in sorted(walk.wants):
        walk.mine.forget(uid)
    while walk.answers or walk.late:
        walk.answer()
        walk.show()
    assert walk.mine.assumed == {}
    assert walk.mine.inventory.claims == walk.server
    assert list(walk.mine.validate()) == []


def test_without_the_check_of_what_others_took_a_device_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "taken_by_others", lambda *_: "")
    mine = kept(WANTED, SECOND)
    mine.assume("a", WANTED.key, GIVEN, 1.0)
    mine.assume("b", SECOND.key, GIVEN, 1.0)
    assert list(mine.validate()) == [f"claims-twice: {DRIVER}/n0/d0 is allocated to more than one claim"]


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("claims-usage", lambda mine: mine.inventory.usage.count(OTHER)),
        ("claims-held", lambda mine: mine.assumed[WANTED.key].consumers.clear()),
        ("claims-held", lambda mine: mine.inventory.remove_claim(WANTED.key)),
        ("claims-consumers", lambda mine: mine.inventory.put_claim(
            replace(mine.inventory.claims[WANTED.key], reserved_for=tuple(map(str, range(257)))))),
        ("claims-of-pods", lambda mine: mine._of_pod.clear()),
        ("claims-reserves", lambda mine: mine.assumed[WANTED.key].reserves.clear()),
    ],
)  # fmt: skip
def test_each_broken_invariant_is_named(name: str, broken: object) -> None:
    mine = kept(WANTED)
    mine.assume("a", WANTED.key, GIVEN, 1.0)
    broken(mine)  # type: ignore[operator]
    assert any(line.startswith(name) for line in mine.validate())


def test_without_holding_what_was_sent_a_walk_gives_a_device_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClaimAccounts, "send", lambda *_: None)
    found = ""
    for seed in range(60):
        walk = Walk(seed)
        try:
            for _ in range(150):
                walk.step()
        except AssertionError as error:
            found += str(error)
    assert "claims-twice" in found or "twice on the server" in found
