"""The check of a demo's output files before the run: it finds what cannot be written and leaves what is there."""

from __future__ import annotations

import os

import pytest

from services.cli.demo import _check_writable
from shared.errors import ConfigError


def test_a_new_file_is_not_left_behind(tmp_path):
    _check_writable("--json", tmp_path / "new.json")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_and_a_link_stay(tmp_path):
    (tmp_path / "empty").touch()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    for name in ("empty", "link"):
        _check_writable("--json", tmp_path / name)
    assert (tmp_path / "empty").exists()
    assert (tmp_path / "link").is_symlink()


def test_what_is_no_file_is_neither_removed_nor_waited_for(tmp_path):
    """As root, ``--json /dev/null`` removed the machine's /dev/null; opening a pipe waits for its reader."""
    os.mkfifo(tmp_path / "pipe")
    _check_writable("--json", tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="--audit"):
        _check_writable("--audit", tmp_path)
