"""Recomputes an evaluation from its placements file and the two lists alone; shares no code with what wrote it."""

from __future__ import annotations

import csv
from collections import defaultdict


def recompute(placements: str, pod_list: str, node_list: str) -> dict[int, float]:
    """Allocated percent per seed. Raises ``AssertionError`` where a row breaks a rule of the experiment."""
    pods, nodes = list(csv.DictReader(pod_list.splitlines())), list(csv.DictReader(node_list.splitlines()))
    capacity = 1000 * sum(int(node["gpu"]) for node in nodes)
    by_seed = defaultdict(list)
    for row in csv.DictReader(placements.splitlines()):
        by_seed[int(row["seed"])].append(row)
    result = {}
    for seed, rows in by_seed.items():
        left = {n["sn"]: [int(n["cpu_milli"]), int(n["memory_mib"]), [1000] * int(n["gpu"]), n["model"]] for n in nodes}
        allocated = 0
        assert [int(row["order"]) for row in rows] == list(range(len(rows))), "orders must count from 0"
        for row in rows:
            pod = pods[int(row["pod_row"])]
            if not row["node_sn"]:
                assert not any(fits(node, pod) for node in left.values()), f"{row}: a node had room"
                continue
            node = left[row["node_sn"]]
            assert fits(node, pod), f"{row}: no room"
            node[0] -= int(pod["cpu_milli"])
            node[1] -= int(pod["memory_mib"])
            used = [tuple(map(int, part.split(":"))) for part in row["devices"].split(";") if part]
            assert len({device for device, _ in used}) == len(used) == int(pod["num_gpu"]), f"{row}: devices"
            for device, milli in used:
                assert milli == asked(pod), f"{row}: another amount than asked for"
                node[2][device] -= milli
                assert node[2][device] >= 0, f"{row}: device {device} holds more than 1000"
                allocated += milli
        result[seed] = 100 * allocated / capacity
    return result


def asked(pod: dict[str, str]) -> int:
    """Thousandths of each device."""
    return int(pod["gpu_milli"]) if int(pod["num_gpu"]) == 1 else 1000 if int(pod["num_gpu"]) > 1 else 0


def fits(node: list, pod: dict[str, str]) -> bool:
    """The trace's own definition of room."""
    cpu, memory, devices, model = node
    enough = sum(free >= asked(pod) for free in devices) if int(pod["num_gpu"]) else 0
    spec = pod.get("gpu_spec") or ""
    return (
        cpu >= int(pod["cpu_milli"])
        and memory >= int(pod["memory_mib"])
        and enough >= int(pod["num_gpu"])
        and (not spec or model in spec.split("|"))
    )
