"""For every test: generated inputs are judged by what the code does with them, never by how busy the machine is, and
are the same in each run (``make test-explore`` looks for others); no mesh imports its services anew; no logger
remembers how one test set up logging; and the collector leaves alone what lives for the whole run.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Generator
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.process.mesh import Mesh

settings.register_profile(
    "conclave", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, database=None
)
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("conclave")
Mesh.forks = True

_configure = structlog.configure


def _configured_for_one_test(*given: Any, **settings: Any) -> None:
    """A module's logger that is kept from its first line on (the service's own choice) would write where that test's
    lines went, and ``capture_logs`` of all later ones would see none of it."""
    _configure(*given, **settings)
    _configure(cache_logger_on_first_use=False)


structlog.configure = _configured_for_one_test


def pytest_runtest_logfinish() -> None:
    """Nor does a later test inherit the level: what is below it would reach nobody, ``capture_logs`` neither."""
    structlog.reset_defaults()


@pytest.fixture(scope="module")
def walk_once(request: pytest.FixtureRequest) -> Callable[[int], Any]:
    """The module's own ``walk`` by seed, each seed once, for tests that only look at what came of a sound walk. Whoever
    switches something off, or goes on with a walk, walks anew."""
    walk: Callable[[int], Any] = request.module.walk
    return functools.cache(walk)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests live for the whole run: to look for garbage among them as they come takes a
    fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Twenty thousand tests, and all that they import: each full collection would walk them."""
    gc.collect()
    gc.freeze()
