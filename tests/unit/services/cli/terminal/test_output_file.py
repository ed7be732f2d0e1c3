"""Output files: the check before the run finds what cannot be written, leaves what is there; the end writes whole."""

from __future__ import annotations

import os

import pytest

from services.cli.terminal.output_file import check_distinct, check_writable, write_whole
from shared.errors import ConfigError


def test_a_new_file_is_not_left_behind(tmp_path):
    check_writable("--json", tmp_path / "new.json")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_and_a_link_stay(tmp_path):
    (tmp_path / "empty").touch()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    for name in ("empty", "link"):
        check_writable("--json", tmp_path / name)
    assert (tmp_path / "empty").exists()
    assert (tmp_path / "link").is_symlink()


def test_what_is_no_file_is_neither_removed_nor_waited_for(tmp_path):
    """As root, ``--json /dev/null`` removed the machine's /dev/null; opening a pipe waits for its reader."""
    os.mkfifo(tmp_path / "pipe")
    check_writable("--json", tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="--audit"):
        check_writable("--audit", tmp_path)


def test_a_file_is_replaced_whole(tmp_path):
    (tmp_path / "out.json").write_text("old")
    write_whole("--json", tmp_path / "out.json", b"new")
    assert [file.name for file in tmp_path.iterdir()] == ["out.json"]
    assert (tmp_path / "out.json").read_text() == "new"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    (tmp_path / "out.json").mkdir()
    with pytest.raises(ConfigError, match="--json"):
        write_whole("--json", tmp_path / "out.json", b"new")
    assert [file.name for file in tmp_path.iterdir()] == ["out.json"]


def test_an_output_that_is_an_input_is_refused(tmp_path):
    (tmp_path / "pods.csv").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "pods.csv")
    with pytest.raises(ConfigError, match=r"--placements: .*link is --trace's file too; give another"):
        check_distinct({"--placements": tmp_path / "link"}, {"--trace": tmp_path / "pods.csv", "--nodes": None})


def test_two_outputs_in_one_file_are_refused_but_a_device_takes_both(tmp_path):
    with pytest.raises(ConfigError, match=r"--html: .*out is --json's file too"):
        check_distinct({"--json": tmp_path / "out", "--html": tmp_path / "out"}, {})
    os.mkfifo(tmp_path / "pipe")
    check_distinct({"--json": tmp_path / "pipe", "--html": tmp_path / "pipe"}, {})
    check_distinct({"--json": tmp_path / "one", "--html": tmp_path / "two"}, {"--trace": None})
