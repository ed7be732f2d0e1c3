"""How a global batch is dealt to workers, and what an update of it takes."""

from __future__ import annotations

import pytest

from lab.jobs.example import step_s
from lab.worlds.training.models import DealtBatch
from lab.worlds.training.speed import MeasuredSpeed, MistakenSpeed
from tests.training_jobs import example_models

SMALL = example_models()["small"]


@pytest.mark.parametrize(
    ("workers", "batch", "dealt"),
    [
        pytest.param(2, 64, DealtBatch(32, 1, 64), id="fits"),
        pytest.param(2, 256, DealtBatch(64, 2, 256), id="accumulated"),
        pytest.param(1, 64, DealtBatch(32, 2, 64), id="alone above the initial batch: two passes"),
        pytest.param(1, 32, DealtBatch(32, 1, 32), id="alone at the initial batch: one"),
        pytest.param(3, 64, DealtBatch(22, 1, 66), id="rounded up"),
        pytest.param(3, 256, DealtBatch(42, 2, 252), id="never above the largest measured batch"),
    ],
)
def test_a_batch_is_dealt_to_workers(workers, batch, dealt):
    assert SMALL.deal(workers, batch) == dealt


def test_only_the_last_pass_synchronises():
    step, sync = step_s("small", 1, 2, 64)
    assert SMALL.step_s((2,), SMALL.deal(2, 256)) == pytest.approx(step + (step - sync))


def test_a_share_below_what_a_gpu_was_measured_with_cannot_run():
    assert SMALL.step_s((4, 4), SMALL.deal(8, 32)) is None
    assert MeasuredSpeed(SMALL, 32).samples_per_s((4, 4), 32, "") == 0.0


def test_parameter_servers_have_an_optimum_between_one_worker_and_many():
    speed = MeasuredSpeed(example_models()["servers"], 64)
    rates = [speed.samples_per_s((workers,), 64, "") for workers in range(1, 5)]
    assert max(rates) == rates[1]
    assert rates[0] > rates[3]


def test_efficiency_is_beside_the_jobs_own_batch():
    assert MeasuredSpeed(SMALL, 64).efficiency(64, 0.5) == 1.0
    assert MeasuredSpeed(SMALL, 64).efficiency(128, 0.5) < 1.0 < MeasuredSpeed(SMALL, 64).efficiency(32, 0.5)


def test_a_gpu_type_scales_the_speed():
    fast = MeasuredSpeed(SMALL, 64, {"a100": 3.0})
    assert fast.samples_per_s((2,), 64, "a100") == pytest.approx(3.0 * fast.samples_per_s((2,), 64, "t4"))


def test_a_mistaken_speed_is_off_by_at_most_the_error_and_always_the_same():
    true = MeasuredSpeed(SMALL, 64)
    rates = [MistakenSpeed(true, 0.2, seed).samples_per_s((2,), 64, "") for seed in range(50)]
    assert rates[7] == MistakenSpeed(true, 0.2, 7).samples_per_s((2,), 64, "")
    off = [rate / true.samples_per_s((2,), 64, "") - 1.0 for rate in rates]
    assert -0.2 <= min(off) < -0.1
    assert 0.1 < max(off) <= 0.2
