"""Limits of attached volumes, kept along as nodes and CSINodes come, change and go."""

from __future__ import annotations

import random

import pytest

from shared.model.resources import MAX_INT64
from shared.scheduling.state.attach_limits import AttachLimits
from shared.scheduling.state.node_table import NodeTable
from tests.builders import make_node

NAMES = [f"n{number}" for number in range(6)]


@pytest.mark.parametrize("seed", range(40))
def test_limits_kept_along_are_those_read_afresh(seed: int) -> None:
    rng = random.Random(seed)
    table, told = NodeTable(2), dict[str, dict[str, int]]()
    limits = AttachLimits(table)
    for _ in range(60):
        name = rng.choice(NAMES)
        match rng.randrange(4):
            case 0:
                table.upsert(make_node(name).node())
            case 1 if name in table.row_of:
                table.remove(name)
            case 2:
                item = {driver: rng.randrange(5) for driver in rng.sample("abc", rng.randrange(3))}
                assert limits.put(name, item) == told.get(name)
                told[name] = item
            case 3:
                assert limits.drop(name) == told.pop(name, None)
        if rng.random() < 0.6:
            least = limits.least()
            for node, row in table.row_of.items():
                assert least[row] == min(told.get(node, {}).values(), default=MAX_INT64)
        assert limits.drivers == {
            driver: count for driver in "abc" if (count := sum(driver in one for one in told.values()))
        }
        assert bool(limits) == any(told.values())
