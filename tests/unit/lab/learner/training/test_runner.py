"""The runner, by a run that only counts: when it saves, what it trains again, what a card says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice

import pytest

from lab.algorithms.imitation import ImitationReport
from lab.learner.training.checkpoint import load_checkpoint, settings_digest
from lab.learner.training.run_files import checkpoint_of
from lab.learner.training.runner import TrainingReport, TrainRequest, train_seeds, trained_as
from shared.errors import ConfigError


@dataclass(frozen=True)
class Counting:
    seed: int = 1000
    first: int = 0

    def as_json(self) -> dict[str, int]:
        return asdict(self)


class Count:
    """Adds up its steps; validates every second one, and cannot be saved before step 3."""

    unit, length = "steps", 6

    def __init__(self, settings: Counting, cut: int | None = None) -> None:
        self.settings, self.cut = settings, cut
        self.done, self.total = 0, settings.first

    @property
    def finished(self) -> bool:
        return self.done == self.length

    def run(self) -> Iterator[TrainingReport]:
        for _ in islice(range(self.length - self.done), self.cut):
            self.done += 1
            self.total += self.done
            validated = f"total {self.total}" if self.done % 2 == 0 else ""
            yield TrainingReport(self.done, {"train/total": float(self.total)}, validated, saveable=self.done > 3)

    def get_state(self) -> dict[str, int]:
        return {"done": self.done, "total": self.total}

    def set_state(self, state: dict[str, int]) -> None:
        self.done, self.total = state["done"], state["total"]


def steps(folder) -> list[int]:
    return [json.loads(line)["step"] for line in (folder / "curves-1000.jsonl").read_text().splitlines()]


def test_a_checkpoint_is_taken_after_a_validation_where_the_run_can_be_saved(tmp_path):
    request, settings = TrainRequest("count", tmp_path), Counting()
    for cut, held in ((3, None), (5, 4), (None, 6)):
        checkpoint_of(tmp_path, 1000).unlink(missing_ok=True)
        train_seeds(request, [partial(Count, settings, cut)])
        file = checkpoint_of(tmp_path, 1000)
        found = load_checkpoint(file, digest=settings_digest(settings.as_json())) if file.exists() else {"done": None}
        assert found["done"] == held


def test_a_cut_run_goes_on_from_its_checkpoint_and_a_finished_one_is_not_trained_again(tmp_path):
    request = TrainRequest("count", tmp_path)
    train_seeds(request, [partial(Count, Counting(), 5)])
    assert steps(tmp_path) == [1, 2, 3, 4, 5]
    (whole,) = train_seeds(request, [partial(Count, Counting())])
    assert (whole.done, whole.total) == (6, 21)
    assert steps(tmp_path) == [1, 2, 3, 4, 5, 6]
    (again,) = train_seeds(request, [partial(Count, Counting())])
    assert again.total == 21
    assert steps(tmp_path) == [1, 2, 3, 4, 5, 6]


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    train_seeds(TrainRequest("count", tmp_path), [partial(Count, Counting())])
    with pytest.raises(ConfigError, match="other settings"):
        train_seeds(TrainRequest("count", tmp_path), [partial(Count, Counting(first=7))])


def taught(run: Count, source: str) -> Iterator[ImitationReport]:
    run.total += 100
    yield ImitationReport(1, 0.5, 0.5, 0.75)


def test_a_source_is_imitated_once_before_the_first_step(tmp_path, capsys):
    request = TrainRequest("count", tmp_path, warm_up="kube-default")
    train_seeds(request, [partial(Count, Counting(), 4)], warm_up=taught)
    assert "count seed 1000: agrees with kube-default in 75.0% of the decisions held back" in capsys.readouterr().err
    (whole,) = train_seeds(request, [partial(Count, Counting())], warm_up=taught)
    assert whole.total == 121


@pytest.mark.parametrize("workers", [1, 2])
def test_seeds_beside_each_other_reach_what_they_reach_alone(tmp_path, workers):
    request = TrainRequest("count", tmp_path, seeds=(1000, 1001), workers=workers)
    runs = train_seeds(request, [partial(Count, Counting(seed, seed)) for seed in request.seeds], beside=True)
    assert [run.total for run in runs] == [1021, 1022]


def test_a_card_names_the_command_that_trains_alike(tmp_path):
    request = TrainRequest("count", tmp_path, seeds=(1000, 1001, 1005), warm_up="/some/where/twin.json.gz")
    trained = trained_as(request, Count(Counting()), validation_seeds=range(500, 502), data="none", steps=6)
    assert trained["command"] == (
        "python -m lab.learner train count --seeds 1000-1001,1005 --steps 6 --out DIR --warm-up twin.json.gz"
    )
    assert trained["seeds"] == {"training": [1000, 1001, 1005], "chosen": 1000, "validation": [500, 501]}
