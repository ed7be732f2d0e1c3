"""The commands of ``conclave``: each is where the table says, and none is imported before it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from services.cli.app import OPERATE, OTHERS, conclave
from tests.patience import PATIENCE_S

HEAVY = ("aiohttp", "cryptography", "google", "grpc", "numpy", "psutil", "rich")


@pytest.mark.parametrize("name", sorted(OPERATE | OTHERS))
def test_each_command_is_where_the_table_says(name: str) -> None:
    assert conclave.commands[name].name == name


def test_what_stays_beside_a_mesh_imports_nothing_heavy() -> None:
    modules = "services.cli.__main__, shared.runtime.process.lean, services.cli.local.up_run, shared.adapters.kube.api"
    code = f"import sys, {modules}, shared.adapters.kube.config; print(*(m for m in {HEAVY} if sys.modules.get(m)))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert told.stdout.split() == []
