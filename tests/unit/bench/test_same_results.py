"""Two checkouts' figures: what differs is told by its path, and only what a clock gave is left out."""

from __future__ import annotations

from math import nan
from typing import Any

import pytest

from bench.same_results import differences, without_clocks

METRICS: dict[str, Any] = {
    "gpus": {"mean": 0.5, "values": [0.5, nan]}, "latency_ms": {"mean": 2.0}, "decision p99 ms": {"mean": 1.0},
}  # fmt: skip
DOCUMENT: dict[str, Any] = {
    "command": "conclave evaluate", "seeds": [42], "policies": {"fgd": {"metrics": METRICS}},
    "goals": [
        {"goal": "p99 decision at 4 nodes, CPU ms", "value": 1.0, "met": True},
        {"goal": "rejected", "value": 0.0, "met": True},
    ],
}  # fmt: skip


def changed(path: str, value: object) -> dict[str, Any]:
    """The document with another value at a path of keys."""

    def put(at: Any, keys: list[str]) -> Any:
        if not keys:
            return value
        if isinstance(at, list):
            return [put(one, keys[1:]) if number == int(keys[0]) else one for number, one in enumerate(at)]
        return {**at, keys[0]: put(at.get(keys[0]), keys[1:])}

    found: dict[str, Any] = put(DOCUMENT, path.split("/"))
    return found


@pytest.mark.parametrize(
    "path",
    [
        "policies/fgd/metrics/gpus/mean", "policies/fgd/metrics/latency_ms/mean", "policies/fgd/metrics/gpus/values/1",
        "goals/1/value", "goals/1/met", "seeds/0", "policies/frag",
    ],
)  # fmt: skip
def test_another_figure_is_told_by_its_path(path: str) -> None:
    (line,) = differences(without_clocks(DOCUMENT), without_clocks(changed(path, 7)))
    assert line.startswith("$." + path.replace("/1", "[1]").replace("/0", "[0]").replace("/", "."))


@pytest.mark.parametrize(
    "path", ["command", "policies/fgd/metrics/decision p99 ms/mean", "goals/0/value", "goals/0/met"]
)
def test_what_a_clock_gave_and_the_command_are_left_out(path: str) -> None:
    assert differences(without_clocks(DOCUMENT), without_clocks(changed(path, 7))) == []


def test_lists_of_other_lengths_differ() -> None:
    assert differences([1, 2], [1]) == ["$: [1, 2] against [1]"]
