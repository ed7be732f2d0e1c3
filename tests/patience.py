"""How long tests wait for what must come.

One bound for all of them, far above what any machine needs: only a test that fails waits so long, and none says how
fast something is. Speed is measured in ``bench/``.
"""

from __future__ import annotations

import os

PATIENCE_S = 240.0

FULL = os.environ.get("SCENARIO_LENGTH") == "full"
"""``full``: the waits of the scenarios as they are written; else each wait is as short as still proves the point."""

PATIENCE = 1.0 if FULL else 6.0
"""The full length has the cores to itself and holds each promise as it is written. The short one shares them with other
tests, so it asks that the promise holds at all."""
