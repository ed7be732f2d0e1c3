"""The cores of coordinator, agents and binder in virtual time, with a meter around each and turns of a fixed length.

So the same scene runs the same opcodes on every machine. Conversion of what watches show, HTTP and etcd are not in it:
``bench.in_process.counts`` counts the first of them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from msgspec.structs import replace

from bench.gangs.world import GangWorld
from bench.in_process.meters import OpcodeMeter
from bench.saturation.world import BIND_S
from services.binder.core import events as heard
from services.binder.core import instructions as asked
from services.coordinator.core.core import Core
from services.coordinator.core.state import CoreSettings
from shared.agent.core import AgentCore
from shared.model.cluster_events import ObjectChanged
from shared.model.devices import DeviceClaim

COORDINATOR, AGENTS, BINDER = STAGES = ("coordinator", "agents", "binder")
TURN_S, LOOK_S, LONGEST_S, SETTLE_S = 0.001, 0.05, 600.0, 30.0
NODES = 60
Function = Callable[..., Any]


def count(meter: OpcodeMeter, core: object, name: str, stage: str) -> None:
    """What this function of a core runs is the stage's from here on."""
    function: Function = getattr(core, name)

    def counted(*arguments: Any) -> Any:
        meter.enter(stage)
        try:
            return function(*arguments)
        finally:
            meter.leave()

    setattr(core, name, counted)


def count_cores(meter: OpcodeMeter, core: Core, agents: Iterable[AgentCore]) -> None:
    """Those of a coordinator and its agents."""
    count(meter, core, "handle", COORDINATOR)
    for agent in agents:
        count(meter, agent, "decide", AGENTS)
        count(meter, agent, "update", AGENTS)


@contextmanager
def counting(meter: OpcodeMeter) -> Iterator[None]:
    """What is done within is counted."""
    meter.counting = True
    gc.disable()  # its callbacks would be counted, wherever a collection falls
    try:
        yield
    finally:
        gc.enable()
        meter.counting = False


class SceneWorld(GangWorld):
    """``meter``: opcodes so far, by stage; counted within ``counting`` alone, and not where nothing is to be
    ``counted``. ``nodes``: of a scene that does not say itself how many it has. ``claims``: of devices, by key."""

    turn_s = TURN_S

    def __init__(
        self, *, agents: int = 1, policy: str = "kube-default", settings: CoreSettings | None = None,
        counted: bool = True, nodes: int = NODES,
    ) -> None:  # fmt: skip
        super().__init__(agents=agents, seed=1, policy=policy, settings=settings)
        self.nodes = nodes
        self.phase = "scene"
        self.meter = OpcodeMeter()
        self._counted = counted
        self.claims: dict[str, DeviceClaim] = {}
        self._written = 0
        count_cores(self.meter, self.core, self._agents.values())
        count(self.meter, self.binder, "handle_all", BINDER)

    # --- what happens -----------------------------------------------------------------------------------------------

    def add_object(self, kind: str, key: str, item: object) -> None:
        """An object beside pods and nodes, as both services see it."""
        if isinstance(item, DeviceClaim):
            self.claims[key] = item
        self.post(ObjectChanged(kind, key, item))
        self._tell(ObjectChanged(kind, key, item))

    def settle(self) -> None:
        """Everything that was added is listed, and taken in."""
        self.begin()
        self.run(self.now + SETTLE_S)

    def counting(self) -> AbstractContextManager[None]:
        """What is done within is counted."""
        return counting(self.meter) if self._counted else nullcontext()

    def until(self, reached: Callable[[], bool]) -> None:
        """Run until then. ``AssertionError``: it does not come to it."""
        end = self.now + LONGEST_S
        while not reached():
            if self.now >= end:
                raise AssertionError(f"the scene does not come to its end within {LONGEST_S:g} virtual seconds")
            self.run(self.now + LOOK_S)

    def until_bound(self, uids: Collection[str]) -> int:
        """Until they are bound, and both have seen it; how many they are."""
        self.until(lambda: all(self.confirmed(uid) for uid in uids))
        return len(uids)

    def until_told(self, uids: Collection[str]) -> int:
        """Until it is written of each why it waits, and no search goes on; how many they are."""
        self.until(lambda: self.told.keys() >= set(uids) and not self.core.preemptor.searches)
        return len(uids)

    # --- the others -------------------------------------------------------------------------------------------------

    def _do(self, instruction: asked.Instruction) -> None:
        """See ``GangWorld``."""
        if not isinstance(instruction, asked.WriteClaim):
            super()._do(instruction)
            return
        self._written += 1
        claim = self.claims[instruction.key]
        given = self.claims[instruction.key] = replace(
            claim, allocation=instruction.allocation or claim.allocation, protected=True,
            reserved_for=(*claim.reserved_for, *(one.uid for one in instruction.consumers)),
            resource_version=f"{self._written}",
        )  # fmt: skip
        self._tell(heard.ClaimWritten(given), BIND_S)
        self.post(ObjectChanged("resourceclaims", given.key, given), BIND_S)
        self._tell(ObjectChanged("resourceclaims", given.key, given), BIND_S)
