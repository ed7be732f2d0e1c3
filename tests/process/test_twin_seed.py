"""``conclave twin serve --seed``: documented, and refused as an unknown option until it was passed on."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.process.mesh import ROOT

pytestmark = pytest.mark.process

TOKEN = "a-token-of-this-test"


def first_uid(*flags: str) -> str:
    """The uid of an object that a client made on a twin that was just started."""
    command = [sys.executable, "-m", "services.cli", "twin", "serve", "--token", TOKEN, *flags]
    with subprocess.Popen(command, cwd=Path(ROOT), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("serving "), line
            request = urllib.request.Request(
                f"{line.split()[1]}/api/v1/namespaces",
                data=json.dumps({"metadata": {"generateName": "team-"}}).encode(),
                headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                meta = json.load(answer)["metadata"]
            return f"{meta['name']} {meta['uid']}"
        finally:
            process.terminate()


def test_the_same_seed_makes_the_same_names_and_uids() -> None:
    assert first_uid("--seed", "7") == first_uid("--seed", "7") != first_uid("--seed", "8")
