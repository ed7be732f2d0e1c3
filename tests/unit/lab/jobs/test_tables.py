"""Tables of training models: what is read, and one clear line for what cannot be."""

from __future__ import annotations

import pytest

from lab.jobs.example import example_tables, step_s
from lab.jobs.tables import CONVERGENCE_FILE, THROUGHPUT_FILE, read_models
from shared.errors import ConfigError
from tests.training_jobs import example_models, measured_tables


def read(throughput=None, convergence=None):
    tables = example_tables()
    return read_models(throughput or tables[THROUGHPUT_FILE], convergence or tables[CONVERGENCE_FILE])


def test_the_example_is_read_as_its_formula_says():
    models = example_models()
    assert sorted(models) == ["large", "servers", "small"]
    assert models["small"].times.at((2,), 16) == pytest.approx(step_s("small", 1, 2, 16))
    assert models["small"].times.at((2,) * 8, 16) == pytest.approx(step_s("small", 8, 16, 16))
    assert models["small"].local_range == (8, 64)
    assert models["small"].batch_range == (32, 256)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        pytest.param(
            "small,1,1,1,8,", "small,1,1,1,8,nan", "line 2, column step_time_s.*a hole in the table", id="nan"
        ),
        pytest.param("small,1,1,1,8,0.", "small,1,1,1,8,-0.", "line 2, column step_time_s", id="negative"),
        pytest.param("small,2,1,2,8,", "small,3,1,2,8,", "line 6, column gpus_per_node.*not 3 workers", id="counts"),
        pytest.param("small,2,2,1+1,8,", "small,2,2,1+x,8,", "give workers per node with . between", id="placement"),
        pytest.param("small,2,1,2,16,", "small,2,1,2,8,", "small on 2: local_bsz 8 is there twice", id="twice"),
        pytest.param("small,1,1,1,", "tiny,1,1,1,", "small has no row for one worker alone", id="nobody alone"),
        pytest.param("sync_time_s", "sync", "column 7 .sync_time_s.: the header has no such column", id="column"),
    ],
)
def test_a_hole_in_the_throughput_table_is_named(old, new, words):
    text = example_tables()[THROUGHPUT_FILE]
    changed = text.replace(old, new) if "alone" in words else text.replace(old, new, 1)
    if words.endswith("table"):
        changed = text.replace(text.splitlines()[1], "small,1,1,1,8,nan,0.0", 1)
    with pytest.raises(ConfigError, match=words):
        read(throughput=changed)


def test_a_run_whose_progress_stands_still_is_named():
    text = example_tables()[CONVERGENCE_FILE].replace("small,32,800,", "small,32,400,")
    with pytest.raises(ConfigError, match="small: progress does not rise"):
        read(convergence=text)


def test_files_that_do_not_belong_together_are_refused():
    text = example_tables()[CONVERGENCE_FILE]
    for name in ("small", "large", "servers"):
        text = text.replace(f"{name},", f"other-{name},")
    with pytest.raises(ConfigError, match="no model in common"):
        read(convergence=text)


def test_the_measured_tables_are_read_and_agree_with_a_row_of_theirs():
    tables = measured_tables()
    models = read_models(tables[THROUGHPUT_FILE], tables[CONVERGENCE_FILE])
    assert sorted(models) == ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"]
    assert models["cifar10"].times.at((4, 4, 4, 4), 129) == (0.154575, 0.043934)
    assert models["yolov3"].local_range == (4, 8)
    assert models["ncf"].alone
    # 20 GPUs on 5 nodes lie halfway between the rows of 16 on 4 and of 24 on 6, with 129 samples each
    assert models["cifar10"].times.at((4,) * 5, 129)[0] == pytest.approx((0.154575 + 0.212886) / 2)
