"""The bench of latency through the mesh: with perfect sensors el misses no node; without looking one misses many."""

from __future__ import annotations

from bench.policies.latency_mesh import LatencySensors, SensorAccuracy, run

PERFECT = SensorAccuracy(lag_s=0.0, noise=0.0)
PODS = 90


def test_with_sensors_that_see_all_el_takes_a_node_within_the_limit_wherever_there_is_one() -> None:
    result = run("el", 42, PERFECT, pods=PODS)
    got, could = result.once_known
    assert got == could > 0
    assert result.of_all[1] > could, "until a change is known nobody can follow it"


def test_a_policy_that_does_not_look_misses_many() -> None:
    got, could = run("kube-default", 42, PERFECT, pods=PODS).once_known
    assert 0 < got < 0.8 * could


def test_what_is_read_comes_in_late_and_is_the_median_of_noisy_tries() -> None:
    sensors = LatencySensors(["n0"], SensorAccuracy(lag_s=15.0, noise=0.1), seed=1)
    came = []
    for second in range(-50, 40):
        sensors.tried(float(second), [20_000])
        if second % 5 == 0 and (samples := sensors.read(float(second))) is not None:
            came.append((second, samples[0].latencies))
    assert came[0][0] == -35, "the first reading, 15 s late"
    medians = {latencies["shop"][0] for _, latencies in came if latencies}
    assert len(medians) > 1
    assert all(abs(median - 20_000) < 8_000 for median in medians)
