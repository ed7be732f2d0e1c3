"""Judged by what it is for, each policy goes from shadow to active where that matters; a spoiled copy is withdrawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle

import msgspec
import pytest

from services.coordinator.core.events import PointerSeen
from services.coordinator.core.instructions import KeepWindow
from services.coordinator.core.state import CoreSettings
from shared.decide.stages import Stage
from shared.model.node import Node
from shared.model.pod import Pod
from shared.policy.observation import Observation, Policy, Rng, Supplies, Verdicts, needs_of
from shared.policy.registry import goal_of, load_policy, make_policy, reference
from shared.policy.rollout.judging import RolloutSettings
from shared.policy.rollout.rollout import publish, to_stage
from shared.policy.weights import WeightsFile, decode, encode, shipped
from shared.wire.records import PolicyPointer, PolicyRef
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.rollout.test_evaluation import OLD, Rolled

SETTINGS = CoreSettings(rollout=RolloutSettings(window_s=2.0, min_samples=6, promotion="auto"))
EVERY_S = 0.25


class Spoiled:
    """The same policy with its scores the other way round, as of weights whose sign was lost."""

    row_local = False

    def __init__(self, policy: Policy) -> None:
        self.name, self.version, self.needs = policy.name, policy.version, needs_of(policy)
        self._policy = policy

    def supply(self, supplies: Supplies) -> None:
        self._policy.supply(supplies)  # type: ignore[attr-defined]

    def decide(self, observation: Observation, rng: Rng) -> Verdicts:
        return Verdicts(-self._policy.decide(observation, rng).score)


@dataclass
class Scenario:
    """Nodes, pods one after the other, and how long each stays (in pods that come after it; 0: for good)."""

    nodes: list[Node]
    pods: list[Callable[[str], Pod]]
    stay: int = 0
    weights: Callable[[], WeightsFile] | None = None
    goal: str = ""
    agents: int = 2


def _pod(cpu: str, memory: str, **annotations: str) -> Callable[[str], Pod]:
    def made(name: str) -> Pod:
        return make_pod(name).cpu(cpu).memory(memory).set(annotations=annotations).pod()

    return made


def _gpu(milli: int, cpu: str = "4") -> Callable[[str], Pod]:
    return lambda name: make_pod(name).cpu(cpu).memory("8Gi").gpu_milli(milli).pod()


def _plain(count: int, cpu: str = "16", memory: str = "64Gi") -> list[Node]:
    return [make_node(f"n{at}").allocatable(cpu=cpu, memory=memory, pods="110").node() for at in range(count)]


def _far(count: int) -> list[Node]:
    found = []
    for at in range(count):
        builder = make_node(f"n{at}").allocatable(cpu="64", memory="256Gi", pods="250")
        builder.json["metadata"]["annotations"] = {"conclave.io/latency-ms": str((5, 25, 60)[at % 3])}
        found.append(builder.node())
    return found


def _own() -> WeightsFile:
    """``ee`` as ``conclave train ee --reward`` writes it."""
    file = shipped("ee")
    card = msgspec.structs.replace(file.card, version=9, goal="reward: 1 - nodes_used / nodes + 0.1 * load")
    return decode(encode(WeightsFile(file.arrays, card)), policy="ee")


LIMITS = {"latencySoftConstraint": "10", "latencyHardConstraint": "30"}
SMALL, LARGE = _pod("500m", "2Gi"), _pod("1500m", "6Gi")
SCENARIOS = {
    "ee": Scenario(_plain(8), [SMALL, LARGE, SMALL], stay=40, goal="nodes"),
    "lb": Scenario(_plain(8), [SMALL], stay=60, goal="balance", agents=1),
    "el": Scenario(_far(9), [_pod("500m", "2Gi", **LIMITS)], stay=60, goal="latency"),
    "marl-dqn": Scenario(_plain(8), [SMALL, LARGE], stay=60, goal="balance"),
    "frag": Scenario(
        [
            make_node(f"g{at}").allocatable(cpu="96", memory="384Gi", pods="110").gpus(8 if at % 2 else 4).node()
            for at in range(8)
        ],
        [_gpu(1000), _gpu(500), _gpu(1000), _gpu(250), _gpu(2000), _gpu(4000)], stay=24, goal="gpus",
    ),
    "ee --reward": Scenario(
        _plain(8), [SMALL, LARGE, SMALL], stay=40, weights=_own,
        goal="reward: 1 - nodes_used / nodes + 0.1 * load",
    ),
}  # fmt: skip


class Rollout(Rolled):
    """A candidate with real weights in its scenario, beside kube-default; spoiled, beside the sound ones."""

    def __init__(self, name: str, *, spoiled: bool = False, agents: int = 0) -> None:
        self.played = SCENARIOS[name]
        bare = name.partition(" ")[0]
        self.file = self.played.weights() if self.played.weights is not None else shipped(bare)
        self.ref = reference(self.file)
        self.spoiled = spoiled
        self.sound = self._renumbered(self.file.card.version + 1) if spoiled else None
        self.made = 0
        super().__init__(agents=agents or self.played.agents, settings=SETTINGS, nodes=0)
        for node in self.played.nodes:
            self.add_node(node)
        self.run()
        if self.sound is not None:
            self.put(PolicyPointer(active=reference(self.sound), number=7))
        published = publish(self.pointer, self.ref, by="olga", made_for=goal_of(bare, self.file.card)).after
        self.put(to_stage(published, Stage.SHADOW, 0, reason="", by="olga").after)

    def _renumbered(self, version: int) -> WeightsFile:
        """The same weights under another version."""
        card = msgspec.structs.replace(self.file.card, version=version)
        return decode(encode(WeightsFile(self.file.arrays, card)), policy=card.policy)

    def _made(self, ref: PolicyRef) -> Policy:
        if ref == OLD:
            return make_policy("kube-default")
        file = self.file if ref == self.ref else self.sound
        assert file is not None
        policy = load_policy(ref.name, data=encode(file), sha256=ref.sha256)
        return Spoiled(policy) if self.spoiled and ref == self.ref else policy

    def _follow(self, pointer: PolicyPointer) -> None:
        for agent in self.agents.values():
            agent.lanes.use(pointer.active, self._made(pointer.active))
            if pointer.candidate is None:
                agent.lanes.withdraw()
            else:
                agent.lanes.try_out(pointer.candidate, self._made(pointer.candidate))

    def put(self, pointer: PolicyPointer) -> None:
        self._follow(pointer)
        self.inbox.append(PointerSeen(pointer))
        self.run()

    def put_later(self, pointer: PolicyPointer) -> None:
        self.inbox.append(PointerSeen(pointer))
        self._follow(pointer)

    def play(self, pods: int) -> None:
        """They come one by one; the oldest go, where they do not stay for good."""
        kinds = cycle(self.played.pods)
        here: list[str] = []
        for _ in range(pods):
            self.made += 1
            pod = next(kinds)(f"p{self.made}")
            here.append(pod.uid)
            self.add_pod(pod)
            self.run(until_s=EVERY_S)
            if self.played.stay and len(here) > self.played.stay:
                self.delete_pod(here.pop(0))

    @property
    def windows(self):
        return [one.window for one in self.trace if isinstance(one, KeepWindow) and one.window.candidate]


PER_NODE = [name for name in SCENARIOS if name != "lb"]
"""Whose scores compare across agents well enough: those of ``lb`` look at what one agent sees."""


@pytest.mark.parametrize(
    ("name", "agents"),
    [*((name, 0) for name in SCENARIOS), *((name, len(SCENARIOS[name].nodes)) for name in PER_NODE)],
)
def test_each_policy_goes_from_shadow_to_active_by_what_it_is_for(name: str, agents: int) -> None:
    scene = Rollout(name, agents=agents)
    scene.play(260)
    told = [(window.stage, window.percent, window.verdict, window.why) for window in scene.windows]
    assert (scene.pointer.active, scene.pointer.candidate) == (scene.ref, None), told
    assert {window.values[0].goal for window in scene.windows} == {SCENARIOS[name].goal}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_spoiled_copy_of_each_is_withdrawn_within_three_windows(name: str) -> None:
    scene = Rollout(name, spoiled=True)
    active = scene.pointer.active
    scene.play(100)
    assert (scene.pointer.active, scene.pointer.candidate) == (active, None)
    assert [window.verdict for window in scene.windows] == ["bad"] * 3, [one.why for one in scene.windows]
    assert f"by the goal {SCENARIOS[name].goal}" in scene.pointer.reason
