"""Recording a cluster's decisions to a file that is there already."""

from __future__ import annotations

import pytest

from services.cli.jobs.record import _take_up
from shared.errors import ConfigError
from shared.jobs.history import DecidedJobs, line_of, parse_history

LINE = line_of(DecidedJobs(at=1.0, gpus=4, jobs=()))


def test_what_a_killed_recorder_left_of_a_line_is_taken_off(tmp_path):
    file = tmp_path / "history.jsonl"
    for rest in ("", LINE[:4], LINE[:-1]):
        file.write_text(f"{LINE}\n{rest}")
        _take_up(file)
        assert file.read_text() == f"{LINE}\n"
    with file.open("a") as appended:
        appended.write(f"{LINE}\n")
    assert len(parse_history(file.read_text(), "h.jsonl")) == 2


def test_a_file_that_is_not_there_yet_is_begun(tmp_path):
    _take_up(tmp_path / "new.jsonl")
    assert not (tmp_path / "new.jsonl").exists()


@pytest.mark.parametrize("text", [b"a: 1\n", b"a: 1", b"{}\n", LINE.encode() + b"\nmore", b"\xff\xfe\n"])
def test_a_file_that_is_no_record_is_refused_and_stays_as_it_is(tmp_path, text):
    file = tmp_path / "other"
    file.write_bytes(text)
    with pytest.raises(ConfigError, match="give a file of conclave jobs record"):
        _take_up(file)
    assert file.read_bytes() == text
