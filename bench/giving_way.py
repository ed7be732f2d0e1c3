"""How soon offline pods give way where many nodes lend half at once: CPU of all cores here, and virtual time.

    python -m bench.giving_way [--nodes 1000]

Nodes are full of eight offline pods each. The cores of coordinator, agent and binder run in one process
(``bench.scenes``); evictions take as long there as Bindings do. Virtual seconds count what is waited for (plans,
requests at a time), CPU what is computed; on one core the last victim is asked after about the sum. Etcd, HTTP and the
API server are not in it.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

from bench.scenes.scenes import lending, offline
from bench.scenes.world import SceneWorld

CORES = 8


def run(nodes: int) -> tuple[int, float, float]:
    """(victims, CPU seconds, virtual seconds) until the last one was evicted."""
    world = SceneWorld(counted=False)
    for number in range(nodes):
        lending(world, number, CORES)
        for other in range(CORES):
            world.add_pod(offline(f"pod-{CORES * number + other:06}", on=f"node-{number:05}"))
    world.settle()
    world.core.state.settings = replace(world.core.state.settings, offline_eviction=True)
    began_s, began = time.process_time(), world.now
    for number in range(nodes):
        lending(world, number, CORES // 2)
    wanted = nodes * CORES // 2
    world.until(lambda: len(world.evicted) >= wanted)
    if len(world.evicted) != wanted:
        raise AssertionError(f"{len(world.evicted)} pods left where {wanted} had to")
    return wanted, time.process_time() - began_s, world.now - began


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.giving_way", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1000)
    victims, cpu_s, virtual_s = run(parser.parse_args().nodes)
    print(f"{victims} victims: {cpu_s:.2f} s of CPU, {1e3 * cpu_s / victims:.3f} ms each; {virtual_s:.2f} virtual s")


if __name__ == "__main__":
    main()
