"""The saturation bench: its own world keeps the rules, and its figures are what they say."""

from __future__ import annotations

import argparse
from collections import Counter

from bench.saturation import core_run, load
from bench.stand.figures import lines, quantile
from bench.stand.processes import turn_figures


def options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    core_run.add_arguments(parser)
    return parser.parse_args(arguments)


def test_in_a_full_cluster_all_are_told_and_every_urgent_pod_gets_room() -> None:
    found = core_run.full(options("full", "--nodes", "6", "--waiting", "20", "--seconds", "3"))
    assert (found["told"], found["urgent_bound"]) == (20, 3)
    assert found["evicted"] > 0


def test_those_that_fit_nowhere_are_told_and_never_placed() -> None:
    found = core_run.churn(options("churn", "--nodes", "10", "--classes", "7", "--seconds", "1"), 20)
    assert (found["told"], found["wrongly_placed"]) == (20, 0)
    assert found["placed"] >= 45


def test_the_loads_have_as_many_classes_as_they_say() -> None:
    def classes(made: list[dict[str, object]]) -> int:
        return len(Counter(str(body["spec"]) for body in made))

    assert classes([load.low(number, 150) for number in range(2000)]) == 150
    hopeless = [load.hopeless(number, 500, guided=0.2, preempting=0.1) for number in range(10_000)]
    assert classes(hopeless) == 500


def test_turns_of_a_phase_are_the_difference_of_two_histograms() -> None:
    assert turn_figures({"0.05": 8.0, "0.1": 9.0, "0.25": 10.0, "+Inf": 10.0, "sum": 0.5}) == {
        "count": 10, "above_50_ms": 2, "longest_at_most_s": 0.25, "seconds": 0.5,
    }  # fmt: skip
    assert turn_figures({}) == {}


def test_quantiles_are_values_that_were_there() -> None:
    assert quantile([3.0, 1.0, 2.0], 50) == 2.0
    assert quantile([], 99) == 0.0
    assert lines({"a": {"b": 1, "c": 2}})[0].split() == ["a", "b", "1,", "c", "2"]
