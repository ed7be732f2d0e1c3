"""The mesh of the process tests itself: what it refuses."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.process.mesh import Mesh, Running


async def test_a_name_that_is_in_use_is_not_started_again(tmp_path: Path) -> None:
    mesh = Mesh(tmp_path)
    mesh.services["binder-0"] = Running("binder-0", [sys.executable, "-c", ""], tmp_path / "log", {})
    with pytest.raises(ValueError, match="binder-0 runs already"):
        await mesh.add("binder", 0)
    assert not mesh._keepers
