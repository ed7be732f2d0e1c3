"""The picture and the table at the end of a demo."""

from __future__ import annotations

from lab.audit.timeline import UtilisationPicture
from lab.cli.demo.report import grouped, table_rows, terminal_picture, write_png


def picture(nodes: int, columns: int = 60) -> UtilisationPicture:
    names = tuple(f"n{i:03d}" for i in range(nodes))
    values = {name: [i / max(nodes - 1, 1)] * columns for i, name in enumerate(names)}
    return UtilisationPicture(names, tuple(float(i) for i in range(columns)), values, {"cpu": [0.5] * columns}, 0.1)


def test_each_of_few_nodes_has_a_row_and_full_is_a_full_block():
    lines = terminal_picture(picture(4), width=60)
    assert len(lines) == 5
    assert lines[3].startswith("n003")
    assert "█" in lines[3]
    assert "█" not in lines[0]
    assert all(len(line) <= 60 for line in lines)


def test_many_nodes_are_grouped_by_their_utilisation():
    rows = grouped(picture(1213))
    assert len(rows) == 16
    means = [values[0] for _, values in rows]
    assert means == sorted(means)


def test_demand_beyond_a_limit_is_marked():
    one = picture(1)
    one.values["n000"][:] = [1.5] * 60
    assert "!" in terminal_picture(one, width=60)[0]


def test_a_png_is_written(tmp_path):
    for nodes in (4, 100):
        write_png(picture(nodes), tmp_path / f"{nodes}.png", title="t")
        assert (tmp_path / f"{nodes}.png").read_bytes().startswith(b"\x89PNG")


def test_the_table_tells_of_a_kill_that_was_not_recovered_from():
    result = {
        "workload": "uniform", "policy": "p", "seed": 1, "pods_submitted": 1, "pods_bound": 1, "pods_unschedulable": 0,
        "double_bound": 0, "overcommitted_nodes": 0, "lost": 0, "pods_per_s": 1.0, "bytes_per_decision": 40.0,
        "imbalance": 0.1, "rss_mb": {"agent": 50.0}, "cpu_ms_per_pod": {"agent": 0.5}, "schedule_latency_ms": {},
        "failovers": [{"victim": "leader", "at_s": 5, "recovery_s": None, "back_s": None}],
    }  # fmt: skip
    assert ("leader killed at 5 s", "not recovered") in table_rows(result)
