"""What ``conclave top`` draws: the overview, how full the nodes are, and the newest placements. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from services.cli.operate.decisions import DECISIONS
from services.cli.operate.lines.overview import overview_lines
from services.cli.terminal.tables import paint

Json = Mapping[str, Any]
BANDS = 10
BAR = 24
FEWEST_ROWS = 3


def top_lines(found: Json, *, width: int, height: int, colour: bool = False) -> list[str]:
    """At most ``height`` - 1 lines; what does not fit is left out from the bottom."""
    overview = found.get("overview") or {}
    title = f"conclave top  {overview.get('time', '')}"
    lines = [paint(title, "bold", on=colour), "", *overview_lines(overview, colour=colour)]
    nodes = found.get("nodes") or {}
    if nodes.get("names"):
        lines += ["", *bands_lines(nodes, width=width, colour=colour)]
    room = height - len(lines) - 2
    if room > FEWEST_ROWS:
        header, *rows = DECISIONS.lines(found.get("decisions") or ())
        lines += ["", paint(header, "dim", on=colour), *rows[: room - 1]]
    return lines[: max(height - 1, 1)]


def bands_lines(nodes: Json, *, width: int, colour: bool = False) -> list[str]:
    """How many nodes have so much of their CPU and memory requested, in bands of 10 %."""
    cpu, memory = bands(nodes.get("cpu") or ()), bands(nodes.get("memory") or ())
    bar = max(min(BAR, (width - 30) // 2), 4)
    most = max([1, *cpu, *memory])
    lines = [paint(f"{'REQUESTED':<11}{'NODES BY CPU':<{bar + 8}}NODES BY MEMORY", "dim", on=colour)]
    for band in range(BANDS):
        parts = [f"{_bar(counts[band], most, bar)} {counts[band] or ''}" for counts in (cpu, memory)]
        lines.append(f"{f'{band * 10}-{band * 10 + 10}%':<11}{parts[0]:<{bar + 8}}{parts[1]}".rstrip())
    return lines


def bands(shares: Sequence[float]) -> list[int]:
    """How many of the shares (0..1) lie in each of ten bands; the last one holds 1.0 and more."""
    counts = [0] * BANDS
    for share in shares:
        counts[min(max(int(share * BANDS), 0), BANDS - 1)] += 1
    return counts


def _bar(count: int, most: int, width: int) -> str:
    """Longest for the fullest band; anything there is shows at least one mark."""
    length = -(-count * width // most)
    return "#" * length
