"""A page of the documentation followed literally: its commands in one shell, in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
DONE = ("git clone", "make env", "export PATH")
"""What the machine that runs the tests has done already."""
TWIN = re.compile(r"^conclave twin serve [^\n]*--kubeconfig-out (\S+) [^\n]*> (\S+) &$", re.MULTILINE)


def page(name: str) -> str:
    """The text of ``docs/name``."""
    return (ROOT / "docs" / name).read_text()


def blocks(text: str, language: str = "sh") -> list[str]:
    """The fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def section(text: str, title: str) -> str:
    """What stands under a heading, up to the next of its rank."""
    head, _, rest = text.partition(f"\n## {title}\n")
    assert rest, f"no heading {title} after {head[:40]!r}"
    return rest.partition("\n## ")[0]


def commands(text: str) -> str:
    """Every command of a text, without what sets the machine up."""
    lines = "\n".join(blocks(text)).splitlines()
    return "\n".join(line for line in lines if not line.startswith(DONE))


def on_a_cluster(script: str, kubeconfig: Path) -> str:
    """The script with a cluster of that kubeconfig where it starts a twin; its jobs keep their numbers."""
    (found,) = TWIN.finditer(script)
    instead = f"cp {kubeconfig} {found[1]}; echo serving > {found[2]}; tail -f /dev/null &"
    return script[: found.start()] + instead + script[found.end() :]


def follow(script: str, folder: Path, *, timeout_s: float = 400) -> str:
    """What the commands printed; fails with their words where one fails. What they start ends with the shell."""
    for part in ("docs", "k8s"):
        (folder / part).symlink_to(ROOT / part)
    program = folder / "bin" / "conclave"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m services.cli "$@"\n')
    program.chmod(0o755)
    # -m: jobs, as in a person's shell
    whole = f"set -emo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n{script}\nwait\n"
    environ = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    environ.pop("KUBECONFIG", None)
    done = subprocess.run(
        ["bash", "-c", whole], cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=timeout_s
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_first_cluster(said: str) -> None:
    """What docs/first-cluster.md says that its reader sees."""
    assert said.count("condition met") == 6 + 1 + 1
    assert "would help: node-a is the nearest" in said
    assert re.search(r"candidate +lb@2 \(.*\), shadow", said)
    assert re.search(r"default/web-1: bound, on node-[abc]", said)
    assert "node-c: drained by admin:local" in said
    leaders = re.findall(r"^leader +(\S+), term (\d+)", said, re.MULTILINE)
    assert int(leaders[0][1]) < int(leaders[-1][1])  # mostly the other coordinator; the dead one may be back in time
