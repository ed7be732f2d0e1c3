"""The reference is what the code says today."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from docs.reference.generate import FOLDER

MAKE = "import json; from docs.reference.generate import pages; print(json.dumps(pages()))"


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    """In a process of its own: a command that was run keeps how its help is asked for (click caches the option)."""
    done = subprocess.run([sys.executable, "-c", MAKE], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_the_committed_reference_is_what_the_code_gives(made: dict[str, str]) -> None:
    stale = [
        name for name, text in made.items() if not (FOLDER / name).is_file() or (FOLDER / name).read_text() != text
    ]
    assert not stale, f"docs/reference: {', '.join(stale)} differ from the code; run `make reference`"


def test_nothing_in_the_reference_is_without_a_meaning(made: dict[str, str]) -> None:
    for name in ("settings.md", "metrics.md", "etcd-keys.md"):
        rows = [line for line in made[name].splitlines() if line.startswith("| `") and "field" not in line]
        for row in rows:
            if name != "etcd-keys.md" or row.count("|") == 3:
                assert row.rstrip(" |").rpartition("|")[2].strip(), row
