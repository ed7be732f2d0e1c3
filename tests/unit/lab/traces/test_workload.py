"""Same seed, same workload; the numbers are those of targets T3."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter

import pytest

from lab.traces.workload import arrivals, thesis_nodes
from shared.errors import ConfigError
from twin.model.usage import USAGE_ANNOTATION, profile_from_json


def kinds(seed: int) -> list[str]:
    return [a.pod["metadata"]["labels"]["app"] for a in arrivals("uniform", random.Random(seed))]


def test_there_are_105_pods_of_three_kinds_one_to_one_to_one_shuffled_by_seed():
    assert Counter(kinds(1)) == {"stress-cpu": 35, "stress-net": 35, "stress-disk": 35}
    assert kinds(1) == kinds(1)
    assert kinds(1) != kinds(2)


def test_same_seed_gives_the_same_trace_to_the_byte():
    first, second = (json.dumps([(a.at_s, a.pod) for a in arrivals("random", random.Random(7))]) for _ in range(2))
    assert first == second


def test_uniform_gaps_are_three_seconds():
    times = [a.at_s for a in arrivals("uniform", random.Random(1))]
    assert times == [3.0 * i for i in range(105)]


def test_random_gaps_have_mean_five_and_deviation_two():
    gaps: list[float] = []
    for seed in range(40):
        times = [a.at_s for a in arrivals("random", random.Random(seed))]
        assert times == sorted(times)
        gaps += [b - a for a, b in itertools.pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((g - mean) ** 2 for g in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(5.0, abs=0.1)
    assert deviation == pytest.approx(2.0, abs=0.1)


def test_requests_hide_the_true_use_and_runs_last_270_s_within_a_fifth():
    for arrival in arrivals("uniform", random.Random(3)):
        assert arrival.pod["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "100m", "memory": "64Mi"}}
        profile = profile_from_json(arrival.pod["metadata"]["annotations"][USAGE_ANNOTATION])
        assert profile.duration_s is not None
        assert 216 <= profile.duration_s <= 324
        kind = arrival.pod["metadata"]["labels"]["app"]
        assert profile.at(1).cpu_millis == {"stress-cpu": 300, "stress-net": 50, "stress-disk": 80}[kind]


def test_an_unknown_workload_is_refused_by_name():
    with pytest.raises(ConfigError, match="--workload: 'poisson'"):
        arrivals("poisson", random.Random(1))


def test_nodes_are_four_cpu_and_eight_gigabytes():
    nodes = thesis_nodes()
    assert len(nodes) == 4
    assert {n["status"]["allocatable"]["cpu"] for n in nodes} == {"4"}
    assert {n["status"]["allocatable"]["memory"] for n in nodes} == {"8G"}
