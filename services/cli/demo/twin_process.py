"""The twin's API server as a child of the demo."""

from __future__ import annotations

import sys
from pathlib import Path

from services.cli.local.supervisor import Spec


def twin_spec(*, port: int, token_file: Path, kubeconfig: Path, audit: Path, speed: float) -> Spec:
    """``python -m services.twin`` that plays kubelets. It keeps the cluster in memory: it is never restarted."""
    argv = (
        sys.executable, "-m", "services.twin", "--port", str(port), "--token-file", str(token_file),
        "--kubeconfig-out", str(kubeconfig), "--audit", str(audit), "--simulate", "--speed", f"{speed:g}",
    )  # fmt: skip
    return Spec("twin", "twin", argv, restart=False)
