"""The table of docs/colocation.md, computed by the rule itself."""

from __future__ import annotations

import re
from pathlib import Path

from shared.model.qos import Qos
from shared.model.resources import CPU
from shared.scheduling.lending.rule import LENDING_DEFAULTS, PodUse, lent, taken

PAGE = (Path(__file__).parents[3] / "docs/colocation.md").read_text()


def rows() -> list[list[str]]:
    lines = PAGE.partition("<!-- lent -->")[2].strip().splitlines()
    table = [line for line in lines[: lines.index("")] if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def millis(text: str) -> int:
    return round(float(text) * 1000)


def test_the_table_is_what_the_rule_says() -> None:
    assert len(rows()) == 6
    for system, online, offline, expected in rows():
        asked, _, used = online.partition(", ")
        qos = Qos.EXCLUSIVE if "exclusive" in asked else Qos.ONLINE
        pods = [PodUse(qos, millis(asked.split()[0]), None if "not" in used else millis(used))]
        pods += [PodUse(Qos.OFFLINE, 0, millis(offline))] if offline else []
        of_it = taken(CPU, pods, system_used=millis(system), reserved=1000)
        assert lent(CPU, 10_000, of_it, LENDING_DEFAULTS, age_s=0) == millis(expected), (system, online, offline)


def test_the_defaults_are_those_of_the_page() -> None:
    found = re.search(r"Threshold\* is (\d+) % of CPU and (\d+) % of memory", PAGE)
    assert found is not None
    assert (float(found[1]), float(found[2])) == (LENDING_DEFAULTS.cpu_percent, LENDING_DEFAULTS.memory_percent)
    assert f"After **{LENDING_DEFAULTS.degrade_s / 60:g} minutes** without" in PAGE
    assert (
        f"{LENDING_DEFAULTS.percentile:g}th percentile of the last {LENDING_DEFAULTS.window_s / 60:g} minutes" in PAGE
    )
