"""How much code a plain pod passes through: functions and modules of the pure part. ``python -m bench.parts.pod_way``.

The mesh world of ``tests/sim`` runs the real cores of a coordinator, two agents and a binder over an etcd and an API
server in memory. After it is warm (nodes listed, views told, two pods bound), one pod that asks for cpu and memory
alone is created and followed until it is bound and its watch event has been seen by coordinator and binder. Counted is
what Python calls meanwhile, each function once however often it runs:

- inside the cores (``Core.handle``, ``AgentCore.decide`` and ``update``, ``BinderCore.handle_all``) and the wire's
  ``encode`` and ``decode``; not the shells, adapters and Kubernetes conversion between them, nor the world of the test;
- code whose file lies in ``services/`` or ``shared/``: functions, methods, properties, generators. A comprehension or
  lambda belongs to the function it is written in; what a decorator generates (a dataclass's ``__init__``) has no file
  and does not count.

No timer is waited for: the pod's intent is deleted with the transaction of the next, as in a mesh with work to do, and
the one deleted here is that of the pod before.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from services.binder.core.core import BinderCore
from services.binder.core.state import BinderCoreSettings
from services.coordinator.core.core import Core
from shared.agent.core import AgentCore
from shared.wire.codec import decode, encode
from tests.builders import make_node, make_pod
from tests.sim.mesh_world import MeshWorld

ROOT = Path(__file__).resolve().parents[2]
COUNTED = ("services/", "shared/")
ENTRIES = frozenset(
    function.__code__
    for function in (Core.handle, AgentCore.decide, AgentCore.update, BinderCore.handle_all, encode, decode)
)

FUNCTIONS_GOAL, MODULES_GOAL = 150, 30


def main() -> None:
    """Print the counts, and with ``--list`` the functions of each module."""
    parser = argparse.ArgumentParser(description="Functions and modules that a plain pod passes through.")
    parser.add_argument("--list", action="store_true", help="the functions of each module too")
    parser.add_argument("--nodes", type=int, default=4)
    options = parser.parse_args()
    found = functions_of_a_pod(options.nodes)
    if options.list:
        for module, names in sorted(found.items()):
            print(f"{module} ({len(names)}): {', '.join(sorted(names))}")
    services: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for module, names in found.items():
        area = ".".join(module.split(".")[:2])
        services[area][0] += len(names)
        services[area][1] += 1
    for area, (functions, modules) in sorted(services.items()):
        print(f"{area:28} {functions:4} functions, {modules:3} modules")
    total = sum(len(names) for names in found.values())
    print(f"a plain pod's way: {total} functions (goal {FUNCTIONS_GOAL}), {len(found)} modules (goal {MODULES_GOAL})")


def functions_of_a_pod(nodes: int = 4) -> dict[str, set[str]]:
    """Qualified names of the functions that one pod passes through in a warm mesh, by module."""
    world = MeshWorld(0, settings=BinderCoreSettings())  # without the checks of invariants that tests switch on
    for number in range(nodes):
        world.kube.add_node(make_node(f"n{number}").allocatable(cpu="8", memory="16Gi"))
    for name in ("first", "second"):
        _bring(world, name)
    return called_by(lambda: _bring(world, "plain"))


def called_by(act: Callable[[], None]) -> dict[str, set[str]]:
    """What of the pure part runs while ``act`` does, by module."""
    codes: set[CodeType] = set()
    inside = 0

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal inside
        if event == "call":
            inside += frame.f_code in ENTRIES
            if inside:
                codes.add(frame.f_code)
        elif event == "return":
            inside -= frame.f_code in ENTRIES

    sys.setprofile(profile)
    try:
        act()
    finally:
        sys.setprofile(None)
    found: dict[str, set[str]] = defaultdict(set)
    for code in codes:
        path = Path(code.co_filename)
        name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
        if name.startswith(COUNTED):
            found[name.removesuffix(".py").replace("/", ".")].add(code.co_qualname.split(".<locals>")[0])
    return dict(found)


def _bring(world: MeshWorld, name: str) -> None:
    """Create a pod and carry everything out until it is bound and both have seen it so."""
    world.kube.add_pod(make_pod(name).cpu("500m").memory("1Gi"))
    while True:
        world.look(world.coordinator)
        world.watch(world.binder)
        world.route_answers()
        if world.coordinator.effects:
            world.do(world.coordinator)
        elif world.binder.effects:
            world.run(world.binder)
        else:
            break
    if not world.node_of(name):
        raise AssertionError(f"{name} was not bound")
    account = world.coordinator.core.state.cache.accounts[world.uid(name)]
    if account.assumed_at is not None or world.coordinator.core.place_of(world.uid(name)):
        raise AssertionError(f"{name} is bound, but not confirmed")


if __name__ == "__main__":
    main()
