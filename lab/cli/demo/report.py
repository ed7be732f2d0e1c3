"""The end of a demo: the table, the picture in the terminal, the PNG.

Rendering only: every figure comes in. Values above 1 (demand beyond a node's limit) are drawn full and marked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.audit.timeline import UtilisationPicture
from lab.cli.demo.gangs import gang_rows
from lab.cli.demo.latency import latency_rows
from lab.cli.demo.tidal import draw_tides, tidal_rows

BLOCKS = " ▁▂▃▄▅▆▇█"
OVER = "!"
MAX_ROWS = 16
ROW_LABEL = 14


def terminal_picture(picture: UtilisationPicture, *, width: int = 72) -> list[str]:
    """One row of blocks per node (per group of nodes when there are many), time to the right."""
    columns = max(10, width - ROW_LABEL - 8)
    lines = []
    for label, values in grouped(picture):
        cells = _resample(values, columns)
        lines.append(f"{label:<{ROW_LABEL}}{''.join(_block(cell) for cell in cells)} {max(values, default=0):5.0%}")
    end = f"{picture.times_s[-1]:.0f} s" if picture.times_s else ""
    lines.append(f"{'':<{ROW_LABEL}}{'0 s':<{columns - len(end)}}{end}")
    return lines


def grouped(picture: UtilisationPicture) -> list[tuple[str, list[float]]]:
    """(label, values over time): each node, or the mean of groups of nodes ordered by their mean utilisation."""
    if len(picture.nodes) <= MAX_ROWS:
        return [(name[:ROW_LABEL], picture.values[name]) for name in picture.nodes]
    ordered = sorted(picture.nodes, key=lambda name: sum(picture.values[name]))
    groups = []
    for number in range(MAX_ROWS):
        names = ordered[number * len(ordered) // MAX_ROWS : (number + 1) * len(ordered) // MAX_ROWS]
        mean = [sum(column) / len(names) for column in zip(*(picture.values[name] for name in names), strict=True)]
        groups.append((f"{len(names)} nodes", mean))
    return groups


def _resample(values: Sequence[float], columns: int) -> list[float]:
    if not values:
        return [0.0] * columns
    return [values[min(len(values) - 1, i * len(values) // columns)] for i in range(columns)]


def _block(value: float) -> str:
    if value > 1.0 + 1e-9:
        return OVER
    return BLOCKS[min(8, max(0, round(value * 8)))]


def write_png(
    picture: UtilisationPicture, file: Path, *, title: str, day: Mapping[str, list[float]] | None = None
) -> None:
    """The same as a PNG: utilisation per node over time, and the means of its parts below; of the workload tidal its
    ``day`` there."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    rows = grouped(picture)
    figure, (upper, lower) = plt.subplots(
        2,
        1,
        figsize=(10, 7),
        sharex=day is None,
        height_ratios=[3, 1.4] if day is None else [1, 1],
        layout="constrained",
    )
    if len(picture.nodes) <= MAX_ROWS:
        for label, values in rows:
            upper.plot(picture.times_s, values, label=label, linewidth=1.4)
        upper.legend(loc="upper left", fontsize="small", ncols=4)
        upper.set_ylabel("highest utilisation of the node")
        upper.set_ylim(bottom=0)
    else:
        mesh = [values for _, values in rows]
        extent = (picture.times_s[0], picture.times_s[-1], 0, len(mesh))
        image = upper.imshow(mesh, aspect="auto", origin="lower", extent=extent, vmin=0, vmax=1, cmap="viridis")
        figure.colorbar(image, ax=upper, label="highest utilisation (mean of the group)")
        upper.set_ylabel(f"{len(picture.nodes)} nodes in {len(mesh)} groups, by utilisation")
    if day is not None:
        upper.set_xlabel("seconds since the first pod")
        draw_tides(lower, day)
    else:
        _draw_parts(lower, picture)
    figure.suptitle(title)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def _draw_parts(axes: Any, picture: UtilisationPicture) -> None:
    for name, values in picture.parts.items():
        if any(values):
            axes.plot(picture.times_s, values, label=name, linewidth=1.2)
    axes.set_ylabel("mean over nodes")
    axes.set_xlabel("seconds since the first pod")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left", fontsize="small", ncols=5)


def table_rows(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The final table's rows (name, value) from the demo's JSON."""
    latency = result.get("schedule_latency_ms") or {}
    rows = [
        ("workload, policy, seed", f"{result['workload']}, {result['policy']}, {result['seed']}"),
        ("pods submitted", _submitted(result)),
        ("pods bound", str(result["pods_bound"])),
        ("pods unschedulable", str(result["pods_unschedulable"])),
        ("double bound", str(result["double_bound"])),
        ("over-committed nodes", str(result["overcommitted_nodes"])),
        ("lost", str(result["lost"])),
        ("pods/s (set by how fast they arrive)", f"{result['pods_per_s']:.1f}"),
        (
            "schedule latency p50, p99 (lower is better)",
            f"{latency.get('p50', 0):.1f} ms, {latency.get('p99', 0):.1f} ms",
        ),
        ("bytes per decision (lower is better)", f"{result['bytes_per_decision']:.1f}"),
        ("imbalance over time (lower is better)", f"{result['imbalance']:.4f}"),
        ("memory, MB (lower is better)", ", ".join(f"{name} {value:.0f}" for name, value in result["rss_mb"].items())),
        (
            "CPU ms per pod (lower is better)",
            ", ".join(f"{name} {value:.2f}" for name, value in result["cpu_ms_per_pod"].items()),
        ),
    ]
    if result.get("gangs"):
        rows += gang_rows(result)
    if result.get("latency"):
        rows += latency_rows(result["latency"])
    if result.get("tidal"):
        rows += tidal_rows(result["tidal"])
    if len(result.get("placed_by") or ()) > 1:
        rows.append(("placed by", ", ".join(f"{name} {count}" for name, count in result["placed_by"].items())))
    learner = (result.get("learning") or {}).get("learner")
    if learner:
        outcomes = ", ".join(f"{count} {what}" for what, count in learner.get("outcomes", {}).items()) or "none yet"
        rows.append(("learner", f"{learner.get('transitions', 0)} transitions; candidates: {outcomes}"))
    for failover in result["failovers"]:
        recovery, back = failover["recovery_s"], failover["back_s"]
        text = "not recovered" if recovery is None else f"next bind after {recovery:.2f} s"
        if back is not None:
            text += f", process back after {back:.2f} s"
        if failover.get("error"):
            text = str(failover["error"])
        rows.append((f"{failover['victim']} killed at {failover['at_s']:g} s", text))
    return rows


def _submitted(result: Mapping[str, Any]) -> str:
    """All pods, and which of them are not the workload's."""
    extra = result.get("pods_extra") or 0
    told = f", {extra} of them beyond the workload, to measure until the last kill had recovered" if extra else ""
    return f"{result['pods_submitted']}{told}"


def print_report(result: Mapping[str, Any], picture: UtilisationPicture | None, *, width: int) -> None:
    """Table and picture to the terminal."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=width, highlight=False)
    table = Table(title="conclave demo", show_header=False)
    table.add_column("what", no_wrap=True)
    table.add_column("value")
    for name, value in table_rows(result):
        table.add_row(name, value)
    console.print(table)
    for problem in result["problems"]:
        console.print(f"PROBLEM: {problem}", markup=False)
    if picture is not None:
        console.print("utilisation of nodes over time (highest of cpu, memory, disk, network, gpu)", markup=False)
        for line in terminal_picture(picture, width=min(width, 100)):
            console.print(line, markup=False)
