"""What a plain pod costs in counts that are the same on every machine, and whether that is what was recorded.

    .venv/bin/python -m bench.in_process.counts [--record] [--files] [--set NAME=VALUE]

Counted per pod, in the warm mesh of ``world.py``: opcodes that Python runs in each stage, bytes of each message,
calls to the API server, transactions and operations in etcd; and how much opcodes grow from few nodes to ten times as
many. ``tests/unit/bench/test_counts.py`` compares them with ``counts.json`` in every run of the tests. The tolerance
holds both ways: a stage that has become cheaper is recorded too, or a later loss of as much would not be seen.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.in_process.meters import OTHERS, OpcodeMeter
from bench.in_process.switches import add_argument, settings_of
from bench.in_process.world import InProcessWorld
from shared.model.cluster_events import PodUpserted
from shared.runtime.observe.logging import current_level, set_level

RECORDED = Path(__file__).with_name("counts.json")
TOLERANCE = 0.08
"""A fifth more of anything is above it wherever within it one begins: (1 - 0.08) x 1.2 > 1 + 0.08."""
PODS, WARM, NODES, AGENTS = 128, 32, 300, 2
MORE_NODES = 10 * NODES
"""Few are more than the pods too, which then change a node each: else more nodes are also more changed ones."""
LEAST = 10.0
"""Opcodes per pod of a stage that is more than a call or two into C."""
MOST_GROWTH = 1.05
NOTED = 1.0
"""Opcodes per pod that a new longest time may add, which is noted: the only clock in the counts."""
Counts = dict[str, dict[str, float]]


def measured(
    nodes: int = NODES, *, meter: OpcodeMeter | None = None, switches: Sequence[str] = (),
    beside: Sequence[PodUpserted] = (),
) -> Counts:  # fmt: skip
    """Per pod, by group and name. ``beside``: what stands there already."""
    meter, pods = meter or OpcodeMeter(), PODS
    core, binder = settings_of(switches)
    world = InProcessWorld(nodes=nodes, agents=AGENTS, meter=meter, settings=core, binder_settings=binder)
    world.start()
    world.show(beside)
    world.create((f"warm-{number:04}" for number in range(WARM)), shapes=4)
    world.run()
    level = current_level()
    set_level("info")  # debug lines cost, and who called may have asked for them
    before, meter.counting = CountsSnapshot(world), True
    gc.disable()  # its callbacks would be counted, wherever a collection falls
    try:
        world.create((f"pod-{number:04}" for number in range(pods)), shapes=4)
        world.run()
    finally:
        gc.enable()
        set_level(level)
    meter.counting = False
    if world.unbound():
        raise AssertionError(f"{world.unbound()} pods were not bound")
    return CountsSnapshot(world).since(before, pods)


class CountsSnapshot:
    """A world's counts at one moment."""

    def __init__(self, world: InProcessWorld) -> None:
        store, server = world.store, world.server
        self.groups: dict[str, dict[str, int]] = {
            "opcodes": {name: spent for name, spent in world.meter.spent.items() if name not in OTHERS},
            "bytes": {**world.bytes, "values in etcd": store.value_bytes},
            "calls": {**server.calls, "transactions": store.txns, "operations in etcd": store.ops},
        }

    def since(self, before: CountsSnapshot, pods: int) -> Counts:
        """What came since, per pod."""
        return {
            group: {name: round((value - before.groups[group].get(name, 0)) / pods, 3) for name, value in now.items()}
            for group, now in self.groups.items()
        }


def growth(few: Counts, many: Counts) -> dict[str, float]:
    """By stage that is Python's: how many times the opcodes of few nodes it takes with many."""
    opcodes = {stage: value for stage, value in few["opcodes"].items() if value >= LEAST}
    return {stage: round(many["opcodes"][stage] / value, 3) for stage, value in opcodes.items()}


def problems(found: Mapping[str, Mapping[str, float]], recorded: Mapping[str, Mapping[str, float]]) -> list[str]:
    """What is off by more than the tolerance, a line each."""
    told = []
    for group in recorded.keys() | found.keys():
        was, now = recorded.get(group, {}), found.get(group, {})
        for name in sorted(was.keys() | now.keys()):
            before, after = was.get(name, 0.0), now.get(name, 0.0)
            slack = NOTED if group == "opcodes" else 1e-9
            if abs(after - before) > TOLERANCE * before + slack:
                told.append(f"{group} of {name}: {after:,.2f} per pod, recorded are {before:,.2f}")
    return sorted(told)


def ablated(switches: Sequence[str]) -> list[str]:
    """What settings change: every count that differs by a hundredth, without and with them."""
    before, after = measured(), measured(switches=switches)
    for counts in (before, after):
        counts["opcodes"]["whole"] = round(sum(counts["opcodes"].values()), 3)
    return [
        f"{group:8} {name:22} {value:12,.2f} {after[group][name]:12,.2f}"
        for group, names in before.items()
        for name, value in names.items()
        if abs(after[group][name] - value) > value / 100
    ]


def by_file(switches: Sequence[str]) -> list[str]:
    """Opcodes per pod of each file of ours, the most first."""
    meter, root = OpcodeMeter(by_file=True), RECORDED.parents[2]
    measured(meter=meter, switches=switches)
    ordered = sorted(meter.files.items(), key=lambda item: -item[1])
    return [f"{spent / PODS:9,.1f} {Path(name).relative_to(root)}" for name, spent in ordered if ours(name, root)]


def ours(name: str, root: Path) -> bool:
    """Whether the file is of a service or shared between them."""
    return name.startswith((str(root / "services"), str(root / "shared")))


def read() -> dict[str, Any]:
    """What is recorded."""
    found: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


def python() -> str:
    """Opcodes are those of one minor version."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def main() -> None:
    """Print, compare, record."""
    parser = argparse.ArgumentParser(prog="python -m bench.in_process.counts", description=__doc__)
    parser.add_argument(
        "--record", action="store_true", help=f"write {RECORDED.name}: these are the counts from now on"
    )
    parser.add_argument("--files", action="store_true", help="opcodes by file instead, the most first")
    add_argument(parser)
    options = parser.parse_args()
    if options.files:
        print("\n".join(by_file(options.set)))
        return
    if options.set:
        print("\n".join(ablated(options.set)))
        return
    found = measured()
    grown = growth(found, measured(MORE_NODES))
    for group, names in found.items():
        for name, value in names.items():
            print(f"{group:8} {name:22} {value:12,.2f}")
    print("\n".join(f"growth   {stage:22} {times:12,.3f}" for stage, times in grown.items()))
    if options.record:
        RECORDED.write_text(json.dumps({"python": python(), "counts": found}, indent=1) + "\n", encoding="utf-8")
    elif told := problems(found, read()["counts"]):
        sys.exit("\n".join(told))


if __name__ == "__main__":
    main()
