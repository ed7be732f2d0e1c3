"""How long tests wait for what must come.

One bound for all of them, far above what any machine needs: only a test that fails waits so long, and none says how
fast something is. Speed is measured in ``bench/``.
"""

from __future__ import annotations

PATIENCE_S = 240.0
