"""The mesh in one process: settings of both services, routes of both, and what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from services.binder import app as binder
from services.binder.admin import BinderAdmin
from services.binder.settings import BinderSettings
from services.coordinator import app as coordinator
from services.coordinator.http.peer_routes import Admin as CoordinatorAdmin
from services.coordinator.settings import CoordinatorSettings
from services.single.app import MeshFace, comes
from services.single.settings import SingleSettings
from shared.errors import ConfigError
from shared.runtime.http.peers import FiguresRoute
from shared.runtime.leading import Faces
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.plugins import plugins_of
from shared.runtime.process.settings import load


@pytest.fixture
def _plugins_anew() -> Iterator[None]:
    plugins_of.cache_clear()
    yield
    plugins_of.cache_clear()


def test_a_setting_of_either_service_counts_and_it_decides_itself() -> None:
    settings = load(SingleSettings, flags={"batch-units": "8", "max-bindings": "5", "kubeconfig": "/k"})
    assert (settings.core().batch_units, settings.binder_core().max_bindings) == (8, 5)
    assert settings.kubeconfig == Path("/k")
    assert settings.embedded_agent


def test_its_environment_is_its_own_and_that_of_all() -> None:
    environ = {"CONCLAVE_SINGLE_SHARD": "east", "CONCLAVE_BINDER_SHARD": "west", "CONCLAVE_SEED": "3"}
    settings = load(SingleSettings, service="single", environ=environ)
    assert (settings.shard, settings.seed) == ("east", 3)
    for other, kind in (("binder", BinderSettings), ("coordinator", CoordinatorSettings)):
        load(kind, service=other, environ={"CONCLAVE_SINGLE_SHARD": "east"})
        assert other in SingleSettings.COMPOSES
    with pytest.raises(ConfigError, match=r"CONCLAVE_COORDINATOR_KEEP_ROOM: .*give CONCLAVE_SINGLE_KEEP_ROOM here"):
        load(SingleSettings, service="single", environ={"CONCLAVE_COORDINATOR_KEEP_ROOM": "on"})


@pytest.mark.parametrize("field", ["tls", "etcd"])
def test_certificates_of_one_role_are_refused(tmp_path: Path, field: str) -> None:
    flags = {f"{field}-{part}": str(tmp_path / part) for part in ("cert", "key", "ca")}
    if field == "etcd":
        flags["etcd"] = "https://127.0.0.1:2379"
    with pytest.raises(ConfigError, match=f"{field}_cert: a certificate is of one role"):
        load(SingleSettings, flags=flags)


def test_every_route_of_both_is_there_once_and_the_status_tells_of_both() -> None:
    deciding, binding = CoordinatorAdmin("s-0"), BinderAdmin("s-0", "0")
    routes = Faces(deciding, binder=binding).routes()
    found = {route.path: route for route in routes}
    assert len(found) == len(routes)
    assert found.keys() == {route.path for route in (*deciding.routes(), *binding.routes())}
    status = found["/v1/status"]
    assert isinstance(status, FiguresRoute)
    told = status.read()
    assert (told["leading"], told["binder"]["leading"], told["binder"]["shard"]) == (False, False, "0")


def test_figures_of_both_fit_into_one_registry() -> None:
    metrics = Metrics("single")
    CoordinatorAdmin("s-0").register(metrics)
    BinderAdmin("s-0", "0").register(metrics)
    shown = metrics.exposition().decode()
    assert {'conclave_leader{role="coordinator"} 0.0', 'conclave_leader{role="binder"} 0.0'} <= set(shown.splitlines())
    assert {"coordinator", "binder"} <= metrics.stats().keys()


@pytest.mark.parametrize(
    ("turn", "stopping", "begins"), [(True, False, True), (False, True, False), (True, True, False)]
)
async def test_a_binder_begins_when_its_turn_comes_unless_the_process_is_to_stop(
    turn: bool, stopping: bool, begins: bool
) -> None:
    events = asyncio.Event(), asyncio.Event()
    waiting = asyncio.ensure_future(comes(events[0], unless=events[1]))
    await asyncio.sleep(0)
    assert not waiting.done()
    for event, is_set in zip(events, (turn, stopping), strict=True):
        if is_set:
            event.set()
    assert await waiting == begins


@pytest.mark.usefixtures("_plugins_anew")
@pytest.mark.parametrize("face_of", [coordinator.admin_of, binder.admin_of, MeshFace])
def test_a_plugin_that_was_left_out_is_told_once_before_any_server_is_asked(face_of: Any) -> None:
    plugins_of(()).report("even", "it is left out")
    told = list[tuple[str, str]]()

    def note(subject: str, text: str) -> None:
        told.append((subject, text))

    health = SimpleNamespace(note=note, look=tuple)
    runtime: Any = SimpleNamespace(id="s-0", settings=load(SingleSettings), health=health, metrics=Metrics("single"))
    face_of(runtime, SimpleNamespace(cluster_name=""))
    assert told == [("plugin even", "it is left out")]
