"""A core that learns while another leads begins its term as one that is told all then, and makes no pass over pods."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from bench.in_process.meters import OpcodeMeter
from services.binder.core.core import BinderCore
from services.binder.core.events import IntentsListed as BinderIntentsListed
from services.binder.core.state import BinderCoreSettings
from services.coordinator.core.core import Core
from services.coordinator.core.events import IntentsListed
from services.coordinator.core.instructions import EmitEvent, Instruction, PatchCondition
from services.coordinator.core.state import CoreSettings
from shared.model.cluster_events import Listed, NodeDeleted, NodeUpserted, ObjectChanged, PodDeleted, PodUpserted
from shared.model.pod import Pod
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.scheduling.gates import why_untried
from shared.scheduling.places import Place
from shared.scheduling.pod_groups import PodGroups
from shared.scheduling.state.object_changes import GROUP_SOURCES
from shared.turns import Log
from shared.wire.keys import Keys
from tests.builders import make_node, make_pod

STEPS, NODES = 120, 5
GROUPS = ["", "", *(group_key(GroupSource.NATIVE, "default", name) for name in ("a", "b"))]


def core(term: int) -> Core:
    settings = CoreSettings(validate=True)
    return Core(term=term, scheduler_name="conclave", policy="kube-default", rng=Random(1), settings=settings)


def binder(term: int) -> BinderCore:
    return BinderCore(term, BinderCoreSettings(validate=True), Keys())


class Shown:
    """What a mirror shows: the last event of each object, in the order in which they came."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}

    def take(self, event: Any) -> Any:
        match event:
            case PodUpserted():
                self.objects[event.pod.uid] = event
            case NodeUpserted():
                self.objects[event.node.name] = event
            case PodDeleted():
                self.objects.pop(event.uid, None)
            case NodeDeleted():
                self.objects.pop(event.name, None)
        return event


def changed(rng: Random, shown: Shown, number: int) -> Any:
    """One change of the cluster."""
    nodes, pods = ([o for o in shown.objects.values() if isinstance(o, kind)] for kind in (NodeUpserted, PodUpserted))
    roll = rng.random()
    if not nodes or roll < 0.08:
        return NodeUpserted(make_node(f"n{rng.randrange(NODES)}").allocatable(cpu=rng.choice(["4", "64"])).node())
    if roll < 0.12:
        return NodeDeleted(rng.choice(nodes).node.name)
    if not pods or roll < 0.5:
        built = make_pod(f"p{number}").cpu(rng.choice(["100m", "1"])).priority(rng.choice([0, 9]))
        pod = built.on(f"n{rng.randrange(NODES)}").pod() if rng.random() < 0.4 else built.pod()
        other = rng.random() < 0.1
        return PodUpserted(
            replace(
                pod, group=rng.choice(GROUPS), scheduler_name="another" if other else pod.scheduler_name,
                unsupported=rng.choice(["", "", "", "a", "b"]),
            )
        )  # fmt: skip
    pod = rng.choice(pods).pod
    if pod.unsupported and rng.random() < 0.5:  # the one that leads has said so
        return PodUpserted(replace(pod, condition=("False", *why_untried(pod)), resource_version=str(number)))
    if roll < 0.65:
        return PodDeleted(pod.uid)
    if not pod.node_name and rng.random() < 0.7:
        return PodUpserted(replace(pod, node_name=f"n{rng.randrange(NODES)}", resource_version=str(number)))
    if rng.random() < 0.5:
        return PodUpserted(replace(pod, terminating=True, resource_version=str(number)))
    return PodUpserted(replace(pod, phase="Succeeded", resource_version=str(number)))


def accounted(cluster: Any) -> dict[str, Any]:
    """Who is counted where, and what each node holds by that."""
    table = cluster.table
    return {
        "accounts": {uid: account.node_name for uid, account in cluster.cache.accounts.items()},
        "held": {
            name: {of: int(table.requested[column, row]) for of, column in sorted(table.column_of.items())}
            for name, row in sorted(table.row_of.items())
        },
    }


def known(of: Core) -> dict[str, Any]:
    state = of.state
    groups = {key: (set(one.pending), dict(one.bound)) for key, one in state.groups.members.items() if one.there}
    queued = {uid: entry.place for uid, entry in state.queue.entries.items()}
    return accounted(state.cluster) | {
        "queued": queued, "groups": groups, "others": set(state.others), "gated": set(state.gated),
        "untried": set(state.untried), "waiting": of.reporter.waiting,
    }  # fmt: skip


def known_to_binder(of: BinderCore) -> dict[str, Any]:
    state = of.state
    pending = {uid: pod.resource_version for uid, pod in state.pending.items()}
    leavers = vars(state.leavers)
    leaving = leavers | {"_on": {node: set(on) for node, on in leavers["_on"].items()}}  # it learned when
    return accounted(state.cluster) | {"pending": pending, "leavers": leaving}


ALL_LISTED = [Listed(kind) for kind in ("nodes", "pods", "agents", "control")]


def said(instructions: Sequence[Instruction]) -> set[Instruction]:
    """What is told on pods."""
    return {one for one in instructions if isinstance(one, PatchCondition | EmitEvent)}


@pytest.mark.parametrize("seed", range(12))
def test_a_core_that_has_learned_begins_its_term_as_one_that_is_told_all_then(seed: int) -> None:
    rng, shown, learns, binds = Random(seed), Shown(), core(0), binder(0)
    for number in range(STEPS):
        event = shown.take(changed(rng, shown, number))
        learns.learn([event], float(number))
        binds.learn([event], float(number))
        assert not learns.validate()
    told, now = core(3), float(STEPS)
    learns.lead(3, 0.0)
    binds.lead(3, 0.0)
    told.lead(3, 0.0)
    for number in range(STEPS, STEPS + 5):  # elected, it follows the pods once the intents are known
        event = shown.take(changed(rng, shown, number))
        learns.learn([event], now)
        binds.learn([event], now)
    told.handle([*shown.objects.values()], now)
    heard = [one.handle([IntentsListed(()), *ALL_LISTED], now) for one in (learns, told)]
    for one in (learns, told):
        assert one.state.started
        assert not one.validate()
    assert said(heard[0]) == said(heard[1])
    assert learns.reporter.backlog(now) == told.reporter.backlog(now)
    assert list(learns.state.queue.entries) == list(told.state.queue.entries)
    assert known(learns) == known(told)
    assert learns.state.term == 3
    told_binder = binder(3)
    told_binder.handle_all(list(shown.objects.values()), now)
    assert known_to_binder(binds) == known_to_binder(told_binder)


KIND = next(kind for kind, source in GROUP_SOURCES.items() if source is GroupSource.NATIVE)


def queued_gang() -> dict[str, Place]:
    """Where the members of a gang are, whose object came after the election, and then a pod from the mirror."""
    one, key = core(0), GROUPS[-1]
    one.learn([NodeUpserted(make_node("n0").node())], 0.0)
    members = [replace(make_pod(f"p{number}").cpu("1m").pod(), group=key) for number in range(2)]
    one.learn([PodUpserted(pod) for pod in members], 1.0)
    one.lead(3, 0.0)
    gang = PodGroup(key=key, source=GroupSource.NATIVE, namespace="default", name="b", gang=True, min_count=2)
    one.handle([ObjectChanged(KIND, "default/b", gang)], 1.5)
    one.learn([PodUpserted(make_pod("x").cpu("1m").on("n0").pod())], 2.0)
    one.handle([IntentsListed(()), *ALL_LISTED], 3.0)
    return {uid: entry.place for uid, entry in one.state.queue.entries.items()}


def test_a_gang_is_tried_though_pods_are_learned_of_between_the_election_and_the_first_look() -> None:
    places = queued_gang()
    assert len(places) == 2
    assert Place.GATED not in places.values()


def test_one_whose_groups_nobody_looks_at_when_it_is_elected_keeps_it_gated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation."""
    monkeypatch.setattr(PodGroups, "touch_all", PodGroups.take_touched)
    monkeypatch.setattr(PodGroups, "change", lambda *_: None)
    assert set(queued_gang().values()) == {Place.GATED}


def refused(condition: tuple[str, str, str]) -> tuple[Core, list[Instruction]]:
    """A core that learned of a pod that is not supported, which by now has the condition; what it says, elected."""
    one = core(0)
    pod = replace(make_pod("bad").cpu("1m").pod(), unsupported="resize")
    one.learn([PodUpserted(pod)], 1.0)
    one.learn([PodUpserted(replace(pod, resource_version="9", condition=condition))], 2.0)
    one.lead(3, 0.0)
    return one, one.handle([IntentsListed(()), *ALL_LISTED], 5000.0)


def test_what_the_pod_says_already_is_not_told_again_by_who_is_elected() -> None:
    one, out = refused(("False", *why_untried(replace(make_pod("bad").pod(), unsupported="resize"))))
    assert not any(isinstance(told, PatchCondition | EmitEvent) for told in out)
    assert one.reporter.backlog(5000.0) == (0, 0.0)


def test_what_nobody_told_is_told_by_who_is_elected_and_waits_since_then() -> None:
    one, out = refused(("", "", ""))
    assert sum(isinstance(told, PatchCondition) for told in out) == 1
    assert one.reporter.backlog(5000.0) == (1, 0.0)


def test_pods_and_nodes_that_are_left_out_are_warned_of_once_a_term() -> None:
    one = core(0)
    odd = make_node("odd").node()
    odd = replace(odd, labels={f"l{number}": "" for number in range(1025)})
    bad = replace(make_pod("bad").cpu("1m").pod(), unsupported="resize")
    gone = make_node("gone").node()
    one.learn([NodeUpserted(odd), NodeUpserted(replace(odd, name="gone")), NodeUpserted(gone), PodUpserted(bad)], 1.0)
    one.lead(3, 0.0)
    out = one.handle([IntentsListed(()), *ALL_LISTED], 2.0)
    out += one.handle([NodeUpserted(odd), PodUpserted(bad)], 3.0)
    logs = [told for told in out if isinstance(told, Log) and told.level == "warning"]
    warned = [(told.event, dict(told.facts).get("node", "")) for told in logs]
    assert sorted(warned) == [("node_refused", "odd"), ("pod_refused", "")]
    assert one.state.stats.invalid_pods == 1


def crowd(count: int) -> list[Pod]:
    return [make_pod(f"p{number}").cpu("1m").on(f"n{number % NODES}").pod() for number in range(count)]


def opcodes(begin: Callable[[], object]) -> int:
    meter = OpcodeMeter()
    meter.counting = True
    gc.disable()  # its callbacks would be counted, wherever a collection falls
    meter.enter("takeover")
    try:
        begin()
    finally:
        meter.leave()
        meter.counting = False
        gc.enable()
    return meter.spent["takeover"]


def takeover(count: int, *, learned: bool) -> int:
    """Of both cores, from their election until they may decide, where so many pods stand."""
    events: list[Any] = [NodeUpserted(make_node(f"n{number}").node()) for number in range(NODES)]
    events += [PodUpserted(pod) for pod in crowd(count)]
    decides = Core(term=0, scheduler_name="conclave", policy="kube-default", rng=Random(1))
    binds = BinderCore(0, BinderCoreSettings(), Keys())
    if learned:
        decides.learn(events, 0.0)
        binds.learn(events, 0.0)

    def begin() -> None:
        decides.lead(1, 0.0)
        binds.lead(1, 0.0)
        left: Sequence[Any] = () if learned else events
        out: list[Instruction] = decides.handle([IntentsListed(()), *left, *ALL_LISTED], 1.0)
        assert out
        binds.handle_all([BinderIntentsListed({}), *left, Listed("nodes"), Listed("pods")], 1.0)

    spent = opcodes(begin)
    assert decides.state.started
    assert binds.takeover.accepting
    return spent


def test_a_takeover_by_cores_that_have_learned_costs_the_same_however_many_pods_stand() -> None:
    few, many = takeover(200, learned=True), takeover(1600, learned=True)
    assert many <= 1.05 * few, (few, many)


def test_without_learning_it_grows_with_them() -> None:
    """Ablation."""
    few, many = takeover(200, learned=False), takeover(1600, learned=False)
    assert many >= 4 * few, (few, many)
