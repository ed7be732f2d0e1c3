"""A gang whose members have rules about each other is tried one by one, over turns: what changes amid that counts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from services.coordinator.core import core
from services.coordinator.core.events import ControlSeen
from services.coordinator.core.state import CoreSettings
from services.coordinator.cycle.requeueing import Requeuer
from shared.model.pod import Pod
from shared.scheduling.groups import trial
from shared.scheduling.groups.trial import Trial
from shared.turns import Tick
from shared.wire.records import Paused
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.groups.test_gangs import KEY, tell_group
from tests.unit.services.coordinator.scene import Scene, check_overcommit, check_places

SIX = 6
PAUSED = Paused(by="operator:anna", reason="network works", since="2026-11-22T02:00:00.000Z")


def apart(name: str) -> Pod:
    """No two members on one node."""
    pod = make_pod(name).cpu("1").set(labels={"app": "train"})
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "train"}}}
    pod.json["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return replace(pod.pod(), group=KEY)


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A turn tries two members; whom any has put on a node in thought."""
    monkeypatch.setattr(trial, "PART", 2)
    monkeypatch.setattr(core, "WORK_PER_TURN", 1)
    monkeypatch.setattr(core, "LEAST_WORK", 1)
    names, count = list[str](), Trial.put

    def noted(self: Trial, pod: Pod, row: int) -> None:
        names.append(pod.name)
        count(self, pod, row)

    monkeypatch.setattr(Trial, "put", noted)
    return names


def node(name: str, cpu: str = "1") -> object:
    return make_node(name).label(**{"kubernetes.io/hostname": name}).allocatable(cpu=cpu).node()


def scene_of(nodes: int, *, full: int = 0) -> Scene:
    """Nodes for one member each, the last ``full`` of them taken by others; and the gang comes."""
    scene = Scene(settings=CoreSettings(validate=True))
    for number in range(nodes):
        scene.add_node(node(f"n{number}"))  # type: ignore[arg-type]
    for number in range(full):
        scene.add_pod(replace(make_pod(f"other{number}").cpu("1").pod(), node_name=f"n{nodes - 1 - number}"))
    scene.begin()
    scene.run(batch=100)
    tell_group(scene, SIX)
    for number in range(SIX):
        scene.add_pod(apart(f"m{number}"))
    return scene


def amid(scene: Scene) -> None:
    """Turns until the gang is being tried, and is not judged."""
    for _ in range(200):
        if scene.core.cycle.examined:
            return
        if not scene.step(batch=100):
            scene.deliver(Tick())
    raise AssertionError("it was tried in one turn")


def bound(scene: Scene, until_s: float = 20.0) -> int:
    scene.run(batch=100, until_s=until_s)
    assert check_places(scene) == []
    assert check_overcommit(scene) == []
    assert scene.core.validate() == []
    return sum(uid.startswith("uid-m") for uid, _ in scene.bindings)


def test_no_turn_tries_more_members_than_its_part(put: list[str]) -> None:
    scene, most = scene_of(SIX), 0
    for _ in range(400):
        before = len(put)
        if not scene.step(batch=100):
            scene.deliver(Tick())
        most = max(most, len(put) - before)
    assert bound(scene) == SIX
    assert len(put) >= SIX
    assert most == 2


@pytest.mark.usefixtures("put")
def test_room_that_comes_amid_the_attempt_is_not_missed() -> None:
    assert bound(freed_amid()) == SIX


@pytest.mark.usefixtures("put")
def test_ablation_where_changes_amid_it_are_not_kept_the_gang_sleeps_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Requeuer, "hold", lambda *_: None)
    assert bound(freed_amid()) == 0


def freed_amid() -> Scene:
    scene = scene_of(SIX, full=1)
    amid(scene)
    scene.delete_pod("uid-other0")
    scene.step(batch=100)
    return scene


@pytest.mark.usefixtures("put")
def test_a_node_that_comes_amid_the_attempt_begins_it_anew() -> None:
    scene = scene_of(SIX - 1)
    amid(scene)
    scene.add_node(node("late"))  # type: ignore[arg-type]
    assert bound(scene) == SIX


@pytest.mark.usefixtures("put")
def test_a_member_that_goes_amid_the_attempt_leaves_the_others_waiting() -> None:
    scene = scene_of(SIX)
    amid(scene)
    scene.delete_pod("uid-m0")
    assert bound(scene) == 0
    scene.add_pod(apart("m7"))
    assert bound(scene) == SIX


@pytest.mark.usefixtures("put")
def test_a_pause_ends_the_attempt_and_it_is_made_again() -> None:
    scene = scene_of(SIX)
    amid(scene)
    scene.inbox.append(ControlSeen(PAUSED))
    assert bound(scene) == 0
    assert not scene.core.cycle.examined
    scene.inbox.append(ControlSeen())
    assert bound(scene) == SIX
