"""Opcodes of each core for one pod, or change, of a scene; recorded in ``counts.json``."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bench.in_process import world as in_process
from bench.in_process.counts import python
from bench.in_process.meters import OTHERS, OpcodeMeter
from bench.in_process.server import InProcessServer
from bench.scenes.scenes import PODS, POLICIES, SCENES
from bench.scenes.world import NODES, SceneWorld
from shared.runtime.observe.logging import current_level, set_level

RECORDED = Path(__file__).with_name("counts.json")
TOLERANCE, SLACK = 0.02, 10.0
"""Of a stage's opcodes: a share of what is recorded, and what one more call may cost where there are hardly any."""
Counts = dict[str, dict[str, float]]
Stages = dict[str, float]


def of_scene(name: str, *, policy: str = "kube-default", nodes: int = NODES) -> Stages:
    """By core, for one of the scene's pods."""
    # imports and caches of the process are there then
    SCENES[name](SceneWorld(policy=policy, counted=False, nodes=nodes))
    world = SceneWorld(policy=policy, nodes=nodes)
    count = SCENES[name](world)
    return {stage: round(spent / count, 1) for stage, spent in world.meter.spent.items()}


def of_status() -> Stages:
    """For one change of a bound pod's status that no rule reads: both services' watches and cores."""
    meter = OpcodeMeter()
    world = in_process.InProcessWorld(nodes=NODES, agents=1, meter=meter)
    world.start()
    world.create(f"pod-{number:04}" for number in range(PODS))
    world.run()
    level = current_level()
    set_level("info")  # debug lines cost, and who called may have asked for them
    meter.spent.clear()
    try:
        meter.counting = True
        _change_all(world.server)
        world.run()
    finally:
        meter.counting = False
        set_level(level)
    found: defaultdict[str, float] = defaultdict(float)
    for stage, spent in meter.spent.items():
        if stage not in OTHERS:
            found[stage.split()[0].replace("agent", "agents")] += spent / PODS
    return {stage: round(spent, 1) for stage, spent in found.items()}


def _change_all(server: InProcessServer) -> None:
    for number, pod in enumerate(server.pods.values()):
        server.revision += 1
        pod.revision = server.revision
        address = b'"podIP":"10.0.0.%d","phase":"Running"' % number
        server.lines.append(pod.shown().replace(b'"phase":"Pending"', address))


COUNTED: dict[str, Callable[[], Stages]] = {
    **{name: partial(of_scene, name) for name in SCENES},
    "status": of_status,
    **{f"policy-{policy}": partial(of_scene, "like", policy=policy) for policy in POLICIES},
}
"""By name: what counts it."""


def counted(name: str) -> Stages:
    """By core, for one of the scene's pods or changes."""
    return COUNTED[name]()


def problems(found: Mapping[str, Stages], recorded: Mapping[str, Stages]) -> list[str]:
    """What is off by more than the tolerance, or recorded nowhere, a line each."""
    told = []
    for scene, stages in found.items():
        was = recorded.get(scene, {})
        for stage in sorted(stages.keys() | was.keys()):
            before, now = was.get(stage, 0.0), stages.get(stage, 0.0)
            if abs(now - before) > TOLERANCE * before + SLACK:
                told.append(f"{scene}: {now:,.0f} opcodes of the {stage} for one, recorded are {before:,.0f}")
    return told


def read() -> dict[str, Any]:
    """What is recorded."""
    found: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


def written(counts: Counts) -> str:
    """The file's text: scenes that are no more are left out."""
    kept = {name: counts[name] for name in COUNTED if name in counts}
    return json.dumps({"python": python(), "counts": kept}, indent=1) + "\n"
