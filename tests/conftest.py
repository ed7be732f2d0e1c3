"""For every test: generated inputs are judged by what the code does with them, never by how busy the machine is; no
mesh imports its services anew; and the collector leaves alone what lives for the whole run.
"""

from __future__ import annotations

import gc

from hypothesis import HealthCheck, settings

from tests.process.mesh import Mesh

settings.register_profile("conclave", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("conclave")
Mesh.forks = True


def pytest_collection_finish() -> None:
    """Thirteen thousand tests, and all that they import: each full collection would walk them."""
    gc.collect()
    gc.freeze()
