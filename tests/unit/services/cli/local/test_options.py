"""Folders of a run: gone with it, unless somebody is told to look into them."""

from __future__ import annotations

import pytest

from services.cli.local.options import state_dir
from shared.errors import ConfigError


def test_a_temporary_folder_goes_with_the_run():
    with state_dir("demo", None) as folder:
        assert folder.path.is_dir()
    assert not folder.path.exists()


def test_it_stays_when_it_is_wanted(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with state_dir("demo", None) as folder:
        folder.wanted = True
    assert folder.path.is_dir()


def test_it_stays_when_an_error_points_at_it(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ConfigError), state_dir("demo", None) as folder:
        raise ConfigError(f"see {folder.path}/logs")
    assert folder.path.is_dir()
    with pytest.raises(ConfigError), state_dir("demo", None) as folder:
        raise ConfigError("the port is taken")
    assert not folder.path.exists()


def test_a_folder_that_is_asked_for_must_be_new(tmp_path):
    with state_dir("demo", tmp_path / "a" / "b") as folder:
        (folder.path / "x").touch()
    assert (tmp_path / "a" / "b" / "x").exists()
    with pytest.raises(ConfigError, match="not empty"), state_dir("demo", tmp_path / "a" / "b"):
        pass
    with pytest.raises(ConfigError, match="--keep"), state_dir("demo", tmp_path / "a" / "b" / "x" / "y"):
        pass
