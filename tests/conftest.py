"""For every test: generated inputs are judged by what the code does with them, never by how busy the machine is; no
mesh imports its services anew; the collector leaves alone what lives for the whole run; and each test leaves the level
that is logged from as it found it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from shared.runtime.observe.logging import current_level, set_level
from tests.process.mesh import Mesh

settings.register_profile("conclave", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("conclave")
Mesh.forks = True


def pytest_collection_finish() -> None:
    """Thirteen thousand tests, and all that they import: each full collection would walk them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _same_log_level() -> Iterator[None]:
    """Debug lines that a test left on would cost the tests after it, and be counted (``bench.in_process.counts``)."""
    before = current_level()
    yield
    if current_level() != before:
        set_level(before)
