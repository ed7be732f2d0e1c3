"""Runs a dashboard's module without a page: what is pure in it needs no browser. The Node is playwright's own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import playwright

from services.coordinator.http.ui_files import FOLDER
from tests.patience import PATIENCE_S

NODE = Path(playwright.__file__).parent / "driver" / "node"


def run(script: str, **given: Any) -> Any:
    """What the body of an async function returns. ``ui(name)`` imports a module of the page; ``given``: by name."""
    program = f"""
        const ui = (name) => import({json.dumps(FOLDER.as_uri())} + '/' + name);
        const {{ {", ".join(given)} }} = {json.dumps(given)};
        const found = await (async () => {{ {script} }})();
        process.stdout.write(JSON.stringify(found ?? null), () => process.exit(0));
    """
    done = subprocess.run(
        [str(NODE), "--no-warnings", "--input-type=module", "--eval", program],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
