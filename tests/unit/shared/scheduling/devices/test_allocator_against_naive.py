"""The search against every combination tried, on small random clusters; and what is kept against what is made anew."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from shared.model.devices import DeviceClaim, DeviceSlice
from shared.scheduling.devices.cel.selectors import Selectors
from shared.scheduling.devices.dynamic_resources import Devices, PodDevices
from shared.scheduling.devices.inventory import Inventory
from shared.scheduling.devices.search import allocator, wanted
from shared.scheduling.framework import Code
from tests.unit.shared.scheduling.devices.naive_devices import Naive
from tests.unit.shared.scheduling.devices.random_devices import (
    CLASSES,
    NODES,
    pod_of,
    some_claim,
    some_slices,
    some_users,
)

SEEDS = range(600)
SELECTORS = Selectors()

Said = list[list[tuple[str, tuple[str, str, str]]]] | str


def inventory_of(slices: list[DeviceSlice], claims: list[DeviceClaim]) -> Inventory:
    inventory = Inventory()
    inventory.classes.update(CLASSES)
    for one in slices:
        inventory.put_slice(one)
    for claim in claims:
        inventory.put_claim(claim)
    return inventory


def said(devices: Devices, claims: list[DeviceClaim]) -> dict[str, Said]:
    prepared = devices.prepare(pod_of(claims), now=0.0)
    assert isinstance(prepared, PodDevices)
    found: dict[str, Said] = {}
    for node in NODES:
        rejection = prepared.rejection(node)
        if rejection is not None:
            assert rejection.code is Code.UNRESOLVABLE
            found[node.name] = rejection.reasons[0]
            continue
        given = prepared.allocations(node, lambda: "share")
        found[node.name] = [[(one.request, one.id) for one in allocation.results] for _, allocation in given]
    mask = devices.prepare(pod_of(claims), now=0.0).mask(NODES)
    assert mask.tolist() == [not isinstance(found[node.name], str) for node in NODES]
    return found


def disagreements(seeds: range) -> tuple[list[int], Counter[str]]:
    wrong, kinds = [], Counter[str]()
    for seed in seeds:
        rng = random.Random(seed)
        slices = some_slices(rng)
        users = some_users(rng, slices)
        claims = [some_claim(rng, f"c{i}") for i in range(rng.choice((1, 1, 2)))]
        mine = said(Devices(inventory_of(slices, [*users, *claims]), SELECTORS), claims)
        for node in NODES:
            theirs = Naive(node, slices, users, claims).answer()
            kinds["refused" if isinstance(theirs, str) else "given"] += 1
            if mine[node.name] != theirs:
                wrong.append(seed)
    return wrong, kinds


def test_the_first_of_all_combinations_that_hold_is_chosen() -> None:
    wrong, kinds = disagreements(SEEDS)
    assert not wrong, wrong
    assert min(kinds["refused"], kinds["given"]) >= 200


@pytest.mark.parametrize("name", ["barred", "suffices", "constraint_of"])
def test_without_any_one_rule_it_is_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Anything:
        def add(self, *_: object) -> bool:
            return True

        def remove(self, *_: object) -> None:
            pass

        attribute = ""

    instead = {"barred": lambda *_: False, "suffices": lambda *_: True, "constraint_of": lambda *_: Anything()}
    monkeypatch.setattr(wanted if name == "suffices" else allocator, name, instead[name])
    assert disagreements(SEEDS)[0]


@pytest.mark.parametrize("seed", range(40))
def test_what_is_kept_while_things_change_says_what_a_new_inventory_says(seed: int) -> None:
    rng = random.Random(seed)
    pods = [[some_claim(rng, f"c{i}")] for i in range(3)]
    known: dict[str, DeviceSlice] = {}
    users: dict[str, DeviceClaim] = {}
    inventory = inventory_of([], [claim for claims in pods for claim in claims])
    devices = Devices(inventory, SELECTORS)
    for _ in range(25):
        change = rng.randrange(4)
        if change == 0 or not known:
            for one in some_slices(rng):
                known[one.name] = one
                inventory.put_slice(one)
        elif change == 1:
            gone = known.pop(rng.choice(sorted(known)))
            inventory.remove_slice(gone.name)
        elif change == 2:
            for claim in some_users(rng, list(known.values())):
                users[claim.key] = claim
                inventory.put_claim(claim)
        elif users:
            gone_claim = users.pop(rng.choice(sorted(users)))
            inventory.remove_claim(gone_claim.key)
        for claims in pods:
            fresh = inventory_of(list(known.values()), [*users.values(), *claims])
            assert said(devices, claims) == said(Devices(fresh, SELECTORS), claims)
