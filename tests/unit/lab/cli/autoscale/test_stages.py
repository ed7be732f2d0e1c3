"""Stages: what is done stays done, what was begun goes on, what has other input begins anew."""

from __future__ import annotations

import pytest

from lab.cli.autoscale.stages import LIST, opened
from shared.errors import ConfigError


class Bench:
    """Two stages, the second made of the first; ``did`` says which were done, and what they found."""

    def __init__(self, folder):
        self.folder, self.did, self.said = folder, [], []

    def run(self, first="x", *, title="t", stop=False):
        def one(folder):
            self.did.append("one")
            (folder / "a").write_text(first)
            return ["a"]

        def two(folder):
            self.did.append(f"two on {(folder / 'half').exists()}")
            (folder / "half").write_text("")
            if stop:
                raise KeyboardInterrupt
            (folder / "b").write_text((self.folder / "one" / "a").read_text())
            return ["b"]

        self.did.clear()
        with opened(self.folder, title, self.said.append) as stages:
            stages.run("one", {"first": first}, one)
            stages.run("two", {}, two)
        return self.did


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path / "work")


def test_what_is_done_is_not_done_again(bench):
    assert bench.run() == ["one", "two on False"]
    assert bench.run() == []
    assert bench.said[-1] == "two: done before"


def test_a_stage_that_was_stopped_goes_on_in_its_folder(bench):
    with pytest.raises(KeyboardInterrupt):
        bench.run(stop=True)
    assert bench.run() == ["two on True"]
    assert "two: goes on" in bench.said


def test_other_input_makes_it_and_all_after_it_anew(bench):
    bench.run()
    assert bench.run("y") == ["one", "two on False"]
    assert (bench.folder / "two" / "b").read_text() == "y"


def test_what_cannot_be_made_again_is_kept_whatever_changes(bench):
    seen = []

    def record(folder):
        seen.append((folder / "hours").exists())
        (folder / "hours").write_text("x")
        return ["hours"]

    for bounds in (5, 5, 6):
        with opened(bench.folder, "t", bench.said.append) as stages:
            stages.run("capture", {"bounds": bounds}, record, keep=True)
    assert seen == [False, True]


def test_a_result_that_somebody_changed_is_made_anew(bench):
    bench.run()
    (bench.folder / "two" / "b").write_text("forged")
    assert bench.run() == ["two on True"]
    assert (bench.folder / "two" / "b").read_text() == "x"


def test_a_folder_that_is_somebody_elses_is_refused(bench, tmp_path):
    bench.run()
    with pytest.raises(ConfigError, match="is of t, not of other"):
        bench.run(title="other")
    (bench.folder / LIST).write_text("{")
    with pytest.raises(ConfigError, match=LIST):
        bench.run()
    other = Bench(tmp_path)
    with pytest.raises(ConfigError, match="holds other files"):
        other.run()


def test_two_at_once_are_refused(bench):
    with (
        opened(bench.folder, "t", bench.said.append),
        pytest.raises(ConfigError, match="is being worked in"),
        opened(bench.folder, "t", bench.said.append),
    ):
        pass
